-- One attempt for each request.
-- KEYS: record, bucket, tomb; ARGV: our channel, then for each request: owner, TTL in
-- ms, "mode n limit flags claim", label (and name).
-- Answers: G token [ms], H or W and what look tells, V ahead clock record, X gone, C limit.
local call, sub, format = redis.call, string.sub, string.format
local client = ARGV[1]

-- quick makes the attempts that most calls are, in few steps: at a free name, and for a
-- place behind a plain exclusive holder and others that wait. false: it is another case,
-- and nothing was done. To define the functions of the rest would cost as much again.
local function quick(i)
  local rec, bucket = KEYS[3 * i - 2], KEYS[3 * i - 1]
  local owner, how, label = ARGV[4 * i - 2], ARGV[4 * i], ARGV[4 * i + 1]
  local found = call('MGET', rec, KEYS[3 * i])
  local v = found[1]
  if found[2] then return 'X' end
  if not v then
    if sub(how, 1, 1) ~= 'x' or call('GET', rec) then return false end -- MGET hides what is no string
    local t = call('TIME')
    local clock = t[1] * 1000000 + t[2]
    local token = format('%.0f', clock)
    local last = tonumber(call('SET', bucket, token, 'GET') or 0)
    if last >= clock then
      token = format('%.0f', last + 1)
      call('SET', bucket, token)
    end
    call('SET', rec, 'hf1 x ' .. owner .. ' ' .. token .. ' ' .. token .. ' ' .. client .. ' ' .. label, 'PX', ARGV[4 * i - 1])
    return 'G' .. token
  end
  if sub(v, 1, 6) ~= 'hf1 w ' or sub(how, 1, 8) ~= 'x 0 0 q ' or sub(v, 7, 38) == owner or string.find(label, '\n', 1, true) then return false end
  local t = call('TIME')
  local clock = t[1] * 1000000 + t[2]
  if tonumber(sub(v, 57, 72)) <= clock or tonumber(sub(v, 74, 89)) < clock + 30000000 then return false end
  local queue, places, now = 'hfq' .. sub(rec, 3), 'hfp' .. sub(rec, 3), format('%.0f', clock)
  local others = sub(v, 104, 109) ~= '000000' and call('HLEN', places) -- without those that gave up, if there are any
  if others == 0 then return false end
  local n = call('RPUSH', queue, owner .. ' x ' .. now .. ' ' .. sub(how, 9) .. ' 0 ' .. client .. ' ' .. label)
  if call('HSETNX', places, owner, tonumber(sub(v, 91, 102)) + n) == 0 then -- a repeated request
    call('RPOP', queue)
    return false
  end
  if n == 1 then -- they are new
    call('PEXPIREAT', queue, sub(v, 74, 86) + 1)
    call('PEXPIREAT', places, sub(v, 74, 86) + 1)
  elseif others and others < n - 1 then
    n = others + 1
  end
  return 'V' .. n - 1 .. ' ' .. now .. ' ' .. v
end

if #KEYS == 3 then
  local answer = quick(1)
  if answer then return { answer } end
end

-- include clock.lua
-- include name.lua

local function enqueue(rec, s, p)
  if s.waiting == 0 then
    if call('EXISTS', queueOf(rec), placesOf(rec)) > 0 then
      call('LINDEX', queueOf(rec), 0) -- what is not ours is refused
      call('HLEN', placesOf(rec))
      call('DEL', queueOf(rec), placesOf(rec))
    end
    s.head, s.quit, s.stretched = 0, 0, true
  end
  p.since = num(now)
  local n = call('RPUSH', queueOf(rec), place(p))
  p.number = s.head + n
  call('HSET', placesOf(rec), p.owner, num(p.number))
  s.waiting, s.dirty, s.wrote = s.waiting + 1, true, true
  stretch(s, now + placeTTL)
  return ahead(s, p.number)
end

local function rarely(i)
  local rec, bucket, tomb = KEYS[3 * i - 2], KEYS[3 * i - 1], KEYS[3 * i]
  local owner, ttl, how, tail = ARGV[4 * i - 2], ARGV[4 * i - 1], ARGV[4 * i], ARGV[4 * i + 1]
  local v = call('GET', rec)
  if call('EXISTS', tomb) == 1 then return 'X' end
  local mode, n, limit, flags, claim = string.match(how, '^(%a) (%d+) (%d+) (%S+) (%d+)$')
  limit = tonumber(limit)
  local p = { owner = owner, mode = mode, n = tonumber(n), claim = tonumber(claim), client = client }
  local s, name = open(rec, v)
  p.label, name = string.match(tail, '^([^\n]*)\n?(.*)$')
  advance(rec, bucket, s)
  local h = find(rec, s, owner, '')
  local number = not h and s.waiting > 0 and call('HGET', placesOf(rec), owner)
  local answer
  if h then -- a repeated request
    if h.token == '0' then h.token, s.dirty = mint(bucket), true end
    answer = 'G' .. h.token .. ' ' .. left(h)
  elseif number then
    answer = 'W' .. look(rec, s, ahead(s, numberOf(number)))
  elseif (s.kind ~= '-' or s.waiting > 0) and s.limit ~= limit then
    answer = 'C' .. s.limit
  else
    if mode ~= 'x' and s.kind ~= mode then call('HLEN', holdersOf(rec)) end -- what is not ours is refused
    s.limit = limit
    if s.kind == '-' and s.waiting == 0 then s.name = name end -- else it is there, with a value perhaps
    if admits(s, mode, p.n) and (s.waiting == 0 or string.find(flags, 'u')) then
      answer = 'G' .. grant(rec, bucket, s, p, tonumber(ttl))
    elseif not string.find(flags, 'q') then
      answer = 'H' .. look(rec, s, s.waiting)
    else
      answer = 'W' .. look(rec, s, enqueue(rec, s, p))
    end
  end
  save(rec, s)
  return answer
end

-- include each.lua
if #KEYS == 3 then return { rarely(1) } end
return each(3, function(i) return quick(i) or rarely(i) end)
