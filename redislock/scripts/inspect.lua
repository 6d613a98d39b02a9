-- Reads records as they are; it changes nothing.
-- KEYS: records; ARGV: any, to leave the queue and the holders away. Answers for each: {} if there is none, else {clock in µs, record, its
-- PTTL, fields of the queue, fields of the holders}.
local call, sub = redis.call, string.sub
-- include clock.lua

local function read(i)
  local rec = KEYS[i]
  local kind = call('TYPE', rec).ok
  if kind ~= 'string' then return kind ~= 'none' and { '0', '', 0 } or {} end
  local v = call('GET', rec)
  local answer = { num(clock()), v, call('PTTL', rec) }
  if sub(v, 1, 6) == 'hf1 q ' then
    answer[4], answer[5] = {}, {}
    if #ARGV == 0 then
      answer[4], answer[5] = call('HGETALL', 'hfq' .. sub(rec, 3)), call('HGETALL', 'hfh' .. sub(rec, 3))
    end
  end
  return answer
end

local answers = {}
for i = 1, #KEYS do
  answers[i] = read(i)
end
return answers
