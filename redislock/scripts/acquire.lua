-- One attempt for each request.
-- KEYS: record, bucket, tomb; ARGV: our channel, then for each request: owner, TTL in
-- ms, "mode n limit flags claim", label (and name).
-- Answers: G token [ms], H or W and what look tells, X gone, C limit.
local call, sub = redis.call, string.sub
local client = ARGV[1]

-- Most calls are one attempt at a free name. They end here, as to define the functions
-- below would cost as much again.
local first
if #KEYS == 3 then
  first = call('GET', KEYS[1])
  if not first and sub(ARGV[4], 1, 1) == 'x' then
    if call('EXISTS', KEYS[3]) == 1 then return { 'X' } end
    local t = call('TIME')
    local clock = t[1] * 1000000 + t[2]
    local token = string.format('%.0f', clock)
    local last = tonumber(call('SET', KEYS[2], token, 'GET') or 0)
    if last >= clock then
      token = string.format('%.0f', last + 1)
      call('SET', KEYS[2], token)
    end
    call('SET', KEYS[1], 'hf1 x ' .. ARGV[2] .. ' ' .. token .. ' ' .. token .. ' ' .. client .. ' ' .. ARGV[5], 'PX', ARGV[3])
    return { 'G' .. token }
  end
end

-- include clock.lua

local rarely -- what a free name does not need

-- lineUp takes a place behind an exclusive holder and others that wait: what the
-- rest would do, in fewer steps. nil: it is another case, and nothing was done.
local function lineUp(rec, v, owner, claim, tail)
  local head, last, waiting, lives, holder, grant, expires, label, name = string.match(v, queued)
  if not head or holder == owner or tonumber(expires) <= clock() then return end
  local queue = 'hfq' .. sub(rec, 3)
  if call('HEXISTS', queue, 'w' .. owner) == 1 then return end
  local seq, alive = last + 1, now + 30000000
  call('HSET', queue, seq, owner .. ' x 0 ' .. claim .. ' ' .. client .. ' ' .. num(alive) .. ' ' .. num(now) .. ' ' ..
    string.match(tail, '^[^\n]*'), 'w' .. owner, seq)
  lives, expires = tonumber(lives), tonumber(expires)
  if lives < alive then
    lives = alive + 15000000
    call('PEXPIREAT', queue, num(math.ceil(lives / 1000)))
  end
  keepQueued(rec, head, seq, waiting + 1, lives, holder, grant, expires, label, name)
  return 'W' .. math.min(seq - head, waiting) .. ' ' .. num(math.floor((expires - now) / 1000)) .. ' ' .. num(now) .. ' x ' ..
    holder .. ' ' .. grant .. ' ' .. num(expires) .. ' 0 ' .. label .. '\n'
end

local function attempt(i)
  local rec, bucket, tomb = KEYS[3 * i - 2], KEYS[3 * i - 1], KEYS[3 * i]
  local owner, ttl, how, tail = ARGV[4 * i - 2], ARGV[4 * i - 1], ARGV[4 * i], ARGV[4 * i + 1]
  local v = first
  if v == nil then v = call('GET', rec) end
  if call('EXISTS', tomb) == 1 then return 'X' end
  if not v and sub(how, 1, 1) == 'x' then
    local token = mint(bucket)
    call('SET', rec, 'hf1 x ' .. owner .. ' ' .. token .. ' ' .. token .. ' ' .. client .. ' ' .. tail, 'PX', ttl)
    return 'G' .. token
  end
  local claim = v and string.match(how, '^x 0 0 q (%d+)$')
  return claim and lineUp(rec, v, owner, claim, tail) or rarely(rec, bucket, v, owner, ttl, how, tail)
end

local function library()
  -- include name.lua

  local function enqueue(rec, s, p)
    if s.waiting == 0 then
      call('DEL', queueOf(rec))
      s.head, s.tail, s.stretched = 1, 0, true
    end
    s.tail, s.waiting, s.dirty = s.tail + 1, s.waiting + 1, true
    p.alive, p.since = now + placeTTL, num(now)
    writePlace(rec, num(s.tail), p)
    stretch(s, p.alive)
    return ahead(s, s.tail)
  end

  return function(rec, bucket, v, owner, ttl, how, tail)
    local mode, n, limit, flags, claim = string.match(how, '^(%a) (%d+) (%d+) (%S+) (%d+)$')
    limit = tonumber(limit)
    local p = { owner = owner, mode = mode, n = tonumber(n), claim = tonumber(claim), client = client }
    local s, name = open(rec, v)
    p.label, name = string.match(tail, '^([^\n]*)\n?(.*)$')
    advance(rec, bucket, s)
    local h = find(rec, s, owner, '')
    local seq = not h and s.waiting > 0 and call('HGET', queueOf(rec), 'w' .. owner)
    local answer
    if h then -- a repeated request
      if h.token == '0' then h.token, s.dirty = mint(bucket), true end
      answer = 'G' .. h.token .. ' ' .. left(h)
    elseif seq then
      answer = 'W' .. look(rec, s, ahead(s, tonumber(seq)))
    elseif (s.kind ~= '-' or s.waiting > 0) and s.limit ~= limit then
      answer = 'C' .. s.limit
    else
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
end

rarely = function(...)
  rarely = library()
  return rarely(...)
end

-- include each.lua
return each(3, attempt)
