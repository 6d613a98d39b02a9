-- each answers every request; the failure of one is its own answer.
local function each(keys, answer)
  if #KEYS == keys then return { answer(1) } end
  local answers = {}
  for i = 1, #KEYS / keys do
    local ok, a = pcall(answer, i)
    if not ok then a = '!' .. (type(a) == 'table' and a.err or tostring(a)) end
    answers[i] = a
  end
  return answers
end
