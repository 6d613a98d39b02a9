-- Ends the exact grant or place of each request.
-- KEYS: record, bucket, tomb; ARGV for each request: owner, token or "", ms for
-- which the name stays taken or "0", "1" if the owner is abandoned.
-- Answers: 1 ended, 0 there was none.
local call, sub = redis.call, string.sub

-- Most calls are one release of a name that nobody waits for. They end here, as to
-- define the functions below would cost as much again.
local first
if #KEYS == 3 then
  first = call('GET', KEYS[1])
  if not first and ARGV[4] == '' then return { '0' } end
  local want = 'hf1 x ' .. ARGV[1] .. ' ' .. (ARGV[2] ~= '' and ARGV[2] .. ' ' or '')
  if first and ARGV[3] == '0' and ARGV[4] == '' and sub(first, 1, #want) == want then
    call('DEL', KEYS[1]) -- that it is there says that it has not lapsed
    return { '1' }
  end
end

-- include clock.lua

local rarely

-- handOver is the release to a next place that lives and asks for an exclusive
-- hold: what drop and advance would do, in fewer steps. nil: it is another case, and nothing
-- was done.
local function handOver(rec, bucket, v, owner, token)
  local head, tail, waiting, last, holder, held, _, expires, _, name = string.match(v, queued)
  if holder ~= owner or token ~= '' and token ~= held or tonumber(expires) <= clock() then return end
  local queue = 'hfq' .. sub(rec, 3)
  local place = call('HGET', queue, head)
  local heir, claim, client, alive, label = string.match(place or '', '^(%x+) x %d+ (%d+) (%x+) (%d+) %d+ (.*)$')
  if not heir or tonumber(alive) <= now then return end
  call('HDEL', queue, head, 'w' .. heir)
  local minted = mint(bucket)
  if waiting == '1' then
    local text = 'hf1 x ' .. heir .. ' ' .. minted .. ' ' .. client .. ' ' .. label
    call('SET', rec, name == '' and text or text .. '\n' .. name, 'PX', claim)
  else
    keepQueued(rec, head + 1, tail, waiting - 1, tonumber(last), heir, minted, client, now + claim * 1000, label, name)
  end
  tell(rec, client, 'g ' .. heir .. ' ' .. minted .. ' ' .. claim)
  return '1'
end

local function release(i)
  local rec, bucket, tomb = KEYS[3 * i - 2], KEYS[3 * i - 1], KEYS[3 * i]
  local owner, token, keep, abandon = ARGV[4 * i - 3], ARGV[4 * i - 2], ARGV[4 * i - 1], ARGV[4 * i]
  local v, ended = first, '0'
  if v == nil then v = call('GET', rec) end
  if v then
    local want = 'hf1 x ' .. owner .. ' ' .. (token ~= '' and token .. ' ' or '')
    if sub(v, 1, #want) == want and keep == '0' then
      call('DEL', rec) -- that it is there says that it has not lapsed
      ended = '1'
    elseif sub(v, 1, 6) ~= 'hf1 x ' or keep ~= '0' then
      ended = keep == '0' and handOver(rec, bucket, v, owner, token) or rarely(rec, bucket, v, owner, token, keep)
    end
  end
  if abandon == '1' then
    -- After the rest, so that a full memory does not refuse that. A tomb that could not be
    -- made is made up for by the abandon being repeated.
    redis.pcall('SET', tomb, '1', 'PX', 10000)
  end
  return ended
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
      if not seq then return '0' end
      call('HDEL', queueOf(rec), seq, 'w' .. owner)
      s.waiting, s.dirty, s.wrote = s.waiting - 1, true, true
      advance(rec, bucket, s)
    end
    save(rec, s)
    return '1'
  end
end

rarely = function(...)
  rarely = library()
  return rarely(...)
end

-- include each.lua
return each(3, release)
