-- Revokes one grant, found by its token, or by its owner if that is "".
-- KEYS: record, bucket, queue, places, holders; ARGV: token, owner, reason, "1" to end it at once.
-- Answers: N nobody holds, X somebody else does, M marked, F freed.
local call, sub = redis.call, string.sub
-- include clock.lua
-- include name.lua
local rec, bucket = KEYS[1], KEYS[2]
local token, owner, reason, force = ARGV[1], ARGV[2], ARGV[3], ARGV[4] == '1'

local function is(h, field)
  if token ~= '' then return h.token == token end
  return field == owner or owner == nobody and sub(field, 1, 1) == '-' -- released, and kept taken
end

local function seek(s)
  if s.kind == 'x' then
    if is(s, s.owner) then return s, s.owner end
    return
  end
  local all, first, of = call('HGETALL', holdersOf(rec))
  for i = 1, #all, 2 do
    local h = readHolder(all[i + 1])
    if is(h, all[i]) and (not first or tonumber(h.token) < tonumber(first.token)) then first, of = h, all[i] end
  end
  return first, of
end

local s = open(rec, call('GET', rec))
advance(rec, bucket, s)
local answer
if s.kind == '-' then
  answer = 'N'
else
  local h, field = seek(s)
  if not h then
    answer = 'X'
  elseif force then
    drop(rec, s, field, h)
    redis.pcall('SET', 'hfx' .. string.match(rec, ':{%d+}:') .. field, '!' .. reason, 'PX', left(h)) -- for its next renewal
    tell(rec, h.client, 'l ' .. field .. ' ' .. reason)
    advance(rec, bucket, s)
    answer = 'F'
  else
    h.broken, s.dirty = '!' .. reason, true
    if s.kind ~= 'x' then writeHolder(rec, s, field, h) end
    tell(rec, h.client, 'b ' .. field .. ' ' .. reason)
    answer = 'M'
  end
end
save(rec, s)
return { answer }
