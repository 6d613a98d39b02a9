-- Keeps places alive, moves their queues on past what has lapsed, and tells what
-- became of them.
-- KEYS: record, bucket, queue, places, holders; ARGV: the owner of each place.
-- Answers: G token ms, W and what look tells, X gone.
local call, sub = redis.call, string.sub
-- include clock.lua
-- include name.lua

local function beat(i)
  local rec, bucket, owner = KEYS[5 * i - 4], KEYS[5 * i - 3], ARGV[i]
  local v = call('GET', rec)
  if not v then return 'X' end
  local s = open(rec, v)
  local number = s.waiting > 0 and call('HGET', placesOf(rec), owner)
  if number then
    number = numberOf(number)
    stretch(s, now + placeTTL)
    set(rec, s, placesOf(rec), owner, num(number) .. ' ' .. num(now + placeTTL))
  end
  advance(rec, bucket, s)
  local h = find(rec, s, owner, '')
  if h and h.token == '0' then h.token, s.dirty = mint(bucket), true end -- by a late copy of a native attempt
  save(rec, s)
  if h then return 'G' .. h.token .. ' ' .. left(h) end
  if number then return 'W' .. look(rec, s, ahead(s, number)) end
  return 'X'
end

-- include each.lua
return each(5, beat)
