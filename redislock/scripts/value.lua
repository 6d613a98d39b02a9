-- Sets the value of an exact exclusive grant, unless it has that number or a larger one.
-- It is kept behind the name, with the owner whose it is: so it is written and dies with the
-- record, and nobody else's renewal or wait needs to know of it.
-- KEYS: record; ARGV: owner, token or "", number, value. Answers: V it is the owner's, L not.
local call, sub = redis.call, string.sub
-- include clock.lua
-- include name.lua
local rec, owner, token, seq = KEYS[1], ARGV[1], ARGV[2], ARGV[3]

local s = open(rec, call('GET', rec))
if s.kind ~= 'x' or not find(rec, s, owner, token) then return { 'L' } end
local name, whose, said = string.match(s.name, '^(%Z*)%z?(%x*) ?(%d*)')
if whose ~= owner or tonumber(said) < tonumber(seq) then
  s.name, s.dirty = name .. '\0' .. owner .. ' ' .. seq .. ' ' .. ARGV[4], true
  if s.token == '0' and token ~= '' then s.token = token end
  save(rec, s)
end
return { 'V' }
