-- Reads records as they are; it changes nothing.
-- KEYS: records; ARGV: any, to leave the queue and the holders away. Answers for each: {} if there is none, else {clock in µs, record, its
-- PTTL, the queue, fields of the places, fields of the holders}.
local call, sub = redis.call, string.sub
-- include clock.lua

local function read(i)
  local rec = KEYS[i]
  local kind = call('TYPE', rec).ok
  if kind ~= 'string' then return kind ~= 'none' and { '0', '', 0 } or {} end
  local v = call('GET', rec)
  local answer = { num(clock()), v, call('PTTL', rec) }
  if sub(v, 1, 6) ~= 'hf1 x ' then
    answer[4], answer[5], answer[6] = {}, {}, {}
    if #ARGV == 0 then
      local of = sub(rec, 3)
      answer[4], answer[5], answer[6] = call('LRANGE', 'hfq' .. of, 0, -1), call('HGETALL', 'hfp' .. of), call('HGETALL', 'hfh' .. of)
    end
  end
  return answer
end

local answers = {}
for i = 1, #KEYS do
  answers[i] = read(i)
end
return answers
