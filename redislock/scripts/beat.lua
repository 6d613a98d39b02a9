-- Keeps places alive, moves their queues on past what has lapsed, and tells what
-- became of them.
-- KEYS: record, bucket, queue, holders; ARGV: the owner of each place.
-- Answers: G token ms, W and what look tells, X gone.
local call, sub = redis.call, string.sub
-- include clock.lua
-- include name.lua

local function beat(i)
  local rec, bucket, owner = KEYS[4 * i - 3], KEYS[4 * i - 2], ARGV[i]
  local v = call('GET', rec)
  if not v then return 'X' end
  local s = open(rec, v)
  local seq = s.waiting > 0 and call('HGET', queueOf(rec), 'w' .. owner)
  if seq then
    local p = readPlace(call('HGET', queueOf(rec), seq))
    p.alive = now + placeTTL
    writePlace(rec, seq, p)
    stretch(s, p.alive)
  end
  advance(rec, bucket, s)
  local h = find(rec, s, owner, '')
  if h and h.token == '0' then h.token, s.dirty = mint(bucket), true end -- by a late copy of a native attempt
  save(rec, s)
  if h then return 'G' .. h.token .. ' ' .. left(h) end
  if seq then return 'W' .. look(rec, s, ahead(s, tonumber(seq))) end
  return 'X'
end

-- include each.lua
return each(4, beat)
