-- Reads records as they are; it changes nothing.
-- KEYS: records; ARGV: any, to leave the queue and the holders away. Answers for each: {} if there is none, else {clock in µs, record, its
-- PTTL, the queue, fields of the places, fields of the holders}; without a record if it, or what goes with it, is not ours.
local call, sub = redis.call, string.sub
-- include clock.lua

local foreign = { '0', '', 0 }

local function read(i)
  local rec = KEYS[i]
  local kind = call('TYPE', rec).ok
  if kind ~= 'string' then return kind ~= 'none' and foreign or {} end
  local v = call('GET', rec)
  local answer = { num(clock()), v, call('PTTL', rec) }
  local form, of = sub(v, 1, 6), sub(rec, 3)
  if form ~= 'hf1 x ' then
    answer[4], answer[5], answer[6] = {}, {}, {}
    if #ARGV == 0 then
      answer[4], answer[5] = call('LRANGE', 'hfq' .. of, 0, -1), call('HGETALL', 'hfp' .. of)
      if form ~= 'hf1 w ' then answer[6] = call('HGETALL', 'hfh' .. of) end
    end
  end
  return answer
end

local answers = {}
for i = 1, #KEYS do
  local ok, a = pcall(read, i)
  if not ok then -- one of them does not spoil the others
    if not string.find(type(a) == 'table' and a.err or a, 'WRONGTYPE ', 1, true) then error(a, 0) end
    a = foreign
  end
  answers[i] = a
end
return answers
