-- Ends the exact grant or place of each request.
-- KEYS: record, bucket, tomb; ARGV for each request: owner, token or "", ms for
-- which the name stays taken or "0", "1" if the owner is abandoned.
-- Most only end a grant. These may have the record alone as KEYS; ARGV then: how it
-- begins if its token is not known, token or "".
-- Answers: 1 ended, 0 there was none; not in a list if only the one is asked for so.
local call, sub = redis.call, string.sub

-- They end here, as to define the functions below would cost as much again. That a
-- record is there says that it has not lapsed.
local values, answers, left
if #KEYS == 1 and #ARGV == 2 then
  local v, own = call('GET', KEYS[1]), ARGV[1]
  if not v then return 0 end
  if sub(v, 1, 41) == own then return call('DEL', KEYS[1]) end
  values, answers, left = { v }, {}, 1
elseif 2 * #KEYS == #ARGV then
  values, answers, left = {}, {}, 0
  for i = 1, #KEYS do
    local v = redis.pcall('GET', KEYS[i])
    if not v then
      answers[i] = 0
    elseif type(v) == 'string' and sub(v, 1, 41) == ARGV[2 * i - 1] then
      answers[i] = call('DEL', KEYS[i])
    else
      values[i], left = v, left + 1
    end
  end
  if left == 0 then return answers end
end

-- include clock.lua

local rarely

-- handOver is the release to a next place that lives and asks for an exclusive
-- hold: what drop and advance would do, in fewer steps. nil: it is another case, and nothing
-- was done.
local function handOver(rec, bucket, v, owner, token)
  local head, tail, waiting, last, holder, grant, expires, _, name = string.match(v, queued)
  if holder ~= owner or tonumber(expires) <= clock() then return end
  if token ~= '' and sub(grant, 1, #token + 1) ~= token .. ' ' and sub(grant, 1, 2) ~= '0 ' then return end
  local queue = 'hfq' .. sub(rec, 3)
  local place = call('HGET', queue, head)
  local heir, claim, client, alive, label = string.match(place or '', '^(%x+) x %d+ (%d+) (%x+) (%d+) %d+ (.*)$')
  if not heir or tonumber(alive) <= now then return end
  call('HDEL', queue, head, 'w' .. heir)
  local minted = mint(bucket)
  grant = minted .. ' ' .. num(now) .. ' ' .. client
  if waiting == '1' then
    local text = 'hf1 x ' .. heir .. ' ' .. grant .. ' ' .. label
    call('SET', rec, name == '' and text or text .. '\n' .. name, 'PX', claim)
  else
    keepQueued(rec, head + 1, tail, waiting - 1, tonumber(last), heir, grant, now + claim * 1000, label, name)
  end
  tell(rec, client, 'g ' .. heir .. ' ' .. minted .. ' ' .. claim)
  return 1
end

local function release(rec, bucket, owner, token, keep, v)
  if type(v) == 'table' then error(v.err, 0) end
  if not v then return 0 end
  if sub(v, 1, 6) == 'hf1 x ' then
    if sub(v, 7, 38) ~= owner or token ~= '' and sub(v, 40, 40 + #token) ~= token .. ' ' and sub(v, 40, 41) ~= '0 ' then return 0 end
    if keep == '0' then return call('DEL', rec) end
  end
  return keep == '0' and handOver(rec, bucket, v, owner, token) or rarely(rec, bucket, v, owner, token, keep)
end

local function library()
  -- include name.lua

  -- leave keeps the name taken, by nobody, for a while.
  local function leave(rec, s, owner, h, keep)
    h.expires, h.label, s.dirty = now + keep * 1000, h.label .. ' (released)', true
    if s.kind == 'x' then
      s.owner = nobody
      return
    end
    call('HDEL', holdersOf(rec), owner)
    writeHolder(rec, '-' .. h.token, h)
    if h.expires < s.soonest then s.soonest = h.expires end
    stretch(s, h.expires)
    s.stretched = true -- the key is new, if it was the only one
  end

  return function(rec, bucket, v, owner, token, keep)
    local s = open(rec, v)
    local h = find(rec, s, owner, token)
    if h and keep ~= '0' then
      leave(rec, s, owner, h, tonumber(keep))
    elseif h then
      drop(rec, s, owner, h)
      advance(rec, bucket, s)
    else
      local seq = s.waiting > 0 and call('HGET', queueOf(rec), 'w' .. owner)
      if not seq then return 0 end
      call('HDEL', queueOf(rec), seq, 'w' .. owner)
      s.waiting, s.dirty, s.wrote = s.waiting - 1, true, true
      advance(rec, bucket, s)
    end
    save(rec, s)
    return 1
  end
end

rarely = function(...)
  rarely = library()
  return rarely(...)
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
if not left then return each(3, full) end
for i in pairs(values) do
  local ok, a = pcall(plain, i)
  answers[i] = ok and a or '!' .. (type(a) == 'table' and a.err or tostring(a))
end
return answers
