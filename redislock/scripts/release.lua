-- Ends the exact grant or place of each request.
-- KEYS: record, bucket, tomb; ARGV for each request: owner, token or "", ms for
-- which the name stays taken or "0", "1" if the owner is abandoned.
-- Most only end a grant. These may have the record alone as KEYS; ARGV then: how it
-- begins if its token is not known, token or "".
-- Answers: 1 ended, 0 there was none; not in a list if only the one is asked for so.
local call, sub = redis.call, string.sub

-- Those that nobody waits for end here. That a record is there says that it has not lapsed.
local values, answers, others
if #KEYS == 1 and #ARGV == 2 then
  local v, own = call('GET', KEYS[1]), ARGV[1]
  if not v then return 0 end
  if sub(v, 1, 41) == own then return call('DEL', KEYS[1]) end
  values, answers, others = { v }, {}, 1
elseif 2 * #KEYS == #ARGV then
  values, answers, others = {}, {}, 0
  for i = 1, #KEYS do
    local v = redis.pcall('GET', KEYS[i])
    if not v then
      answers[i] = 0
    elseif type(v) == 'string' and sub(v, 1, 41) == ARGV[2 * i - 1] then
      answers[i] = call('DEL', KEYS[i])
    else
      values[i], others = v, others + 1
    end
  end
  if others == 0 then return answers end
end

-- quick is the release of a plain exclusive grant, to the next place that lives and asks
-- for an exclusive hold if there is one: what the rest would do, in fewer steps. false: it is
-- another case, and nothing was done. To define the functions of the rest would cost as
-- much again.
local function quick(rec, owner, token, v)
  local form, its = sub(v, 1, 6), sub(v, 40, 55)
  if sub(v, 7, 38) ~= owner then return form == 'hf1 x ' and 0 end
  if form == 'hf1 x ' then
    if token ~= '' and sub(v, 40, 40 + #token) ~= token .. ' ' and sub(v, 40, 41) ~= '0 ' then return 0 end
    return call('DEL', rec)
  end
  if form ~= 'hf1 w ' or token ~= '' and its ~= token and its ~= '0000000000000000' then return false end
  local t = call('TIME')
  local clock = t[1] * 1000000 + t[2]
  if tonumber(sub(v, 57, 72)) <= clock then return false end
  local format = string.format
  local queue, places, now = 'hfq' .. sub(rec, 3), 'hfp' .. sub(rec, 3), format('%.0f', clock)
  local head, quit = tonumber(sub(v, 91, 102)), tonumber(sub(v, 104, 109))
  local gone, p, heir = quit > 0
  repeat
    p = call('LPOP', queue)
    if not p then
      call('DEL', rec, places)
      return 1
    end
    head = head + 1
    if p == '-' then
      quit = quit - 1
    elseif sub(p, 34, 34) ~= 'x' or #now ~= 16 then
      call('LPUSH', queue, p)
      call('SET', rec, sub(v, 1, 90) .. format('%012d %06d', head - 1, quit) .. sub(v, 110), 'KEEPTTL')
      return false
    else
      heir = sub(p, 1, 32)
      local lives = tonumber(sub(p, 36, 51)) + 30000000 > clock
      if not lives then
        local beaten = string.match(call('HGET', places, heir) or '', ' (%d+)')
        lives = beaten and tonumber(beaten) > clock
      end
      call('HDEL', places, heir)
      if not lives then heir = nil end
    end
  until heir
  if gone and call('HLEN', places) == 0 then -- behind are only some that gave up
    call('DEL', queue)
    quit = 0
  end
  local bucket, minted = 'hft:' .. string.match(rec, '{%d+}'), now
  local last = tonumber(call('SET', bucket, now, 'GET') or 0)
  if last >= clock then
    minted = format('%.0f', last + 1)
    call('SET', bucket, minted)
  end
  local claim, lasts, rest = sub(p, 53, 60), sub(v, 74, 89), sub(p, 64)
  local ends = format('%.0f', clock + claim * 1000)
  local value = 'hf1 w ' .. heir .. ' ' .. minted .. ' ' .. ends .. ' ' .. lasts .. ' ' .. format('%012d %06d', head, quit) .. ' ' .. now .. ' ' ..
    rest .. sub(v, string.find(v, '\n', 111, true), -1)
  if ends <= lasts then
    call('SET', rec, value, 'KEEPTTL')
  else
    call('SET', rec, value, 'PXAT', sub(ends, 1, 13) + 1)
  end
  -- If it may not be sent, the next beat says the same.
  if sub(rest, 17, 17) == ' ' then
    redis.pcall('PUBLISH', 'hfc:' .. sub(rest, 1, 16), 'g ' .. heir .. ' ' .. minted .. ' ' .. claim)
  else
    redis.pcall('SPUBLISH', 'hfc:' .. string.match(rec, '{%d+}') .. ':' .. sub(rest, 1, 17), 'g ' .. heir .. ' ' .. minted .. ' ' .. claim)
  end
  return 1
end

if others == 1 and #KEYS == 1 then
  local ended = quick(KEYS[1], sub(ARGV[1], 7, 38), ARGV[2], values[1])
  if ended then return ended end
  values[1] = call('GET', KEYS[1])
end

-- include clock.lua
-- include name.lua

-- leave keeps the name taken, by nobody, for a while.
local function leave(rec, s, owner, h, keep)
  h.expires, h.label, s.dirty = now + keep * 1000, h.label .. ' (released)', true
  if s.kind == 'x' then
    s.owner = nobody
    return
  end
  call('HDEL', holdersOf(rec), owner)
  writeHolder(rec, s, '-' .. h.token, h)
  if h.expires < s.soonest then s.soonest = h.expires end
  stretch(s, h.expires)
  s.stretched = true -- the key is new, if it was the only one
end

local function rarely(rec, bucket, owner, token, keep)
  local s = open(rec, call('GET', rec))
  local h = find(rec, s, owner, token)
  if h and keep ~= '0' then
    leave(rec, s, owner, h, tonumber(keep))
  elseif h then
    drop(rec, s, owner, h)
    advance(rec, bucket, s)
  else
    local number = s.waiting > 0 and call('HGET', placesOf(rec), owner)
    if not number then return 0 end
    call('HDEL', placesOf(rec), owner)
    call('LSET', queueOf(rec), numberOf(number) - s.head - 1, '-')
    s.waiting, s.quit, s.dirty, s.wrote = s.waiting - 1, s.quit + 1, true, true
    advance(rec, bucket, s)
  end
  save(rec, s)
  return 1
end

local function release(rec, bucket, owner, token, keep, v)
  if type(v) == 'table' then error(v.err, 0) end
  if not v then return 0 end
  return keep == '0' and quick(rec, owner, token, v) or rarely(rec, bucket, owner, token, keep)
end

local function full(i)
  local rec, owner = KEYS[3 * i - 2], ARGV[4 * i - 3]
  local ended = release(rec, KEYS[3 * i - 1], owner, ARGV[4 * i - 2], ARGV[4 * i - 1], call('GET', rec))
  if ARGV[4 * i] == '1' then
    -- After the rest, so that a full memory does not refuse that. A tomb that could not be
    -- made is made up for by the abandon being repeated.
    redis.pcall('SET', KEYS[3 * i], '1', 'PX', 10000)
  end
  return ended
end

local function plain(i)
  local rec = KEYS[i]
  return release(rec, 'hft:' .. string.match(rec, '{%d+}'), sub(ARGV[2 * i - 1], 7, 38), ARGV[2 * i], '0', values[i])
end

-- include each.lua
if not others then return each(3, full) end
if #KEYS == 1 then return plain(1) end
for i in pairs(values) do
  local ok, a = pcall(plain, i)
  answers[i] = ok and a or '!' .. (type(a) == 'table' and a.err or tostring(a))
end
return answers
