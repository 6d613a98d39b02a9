-- The server's clock in µs, read once a script, and the tokens made from it.
local now
local function clock()
  if not now then
    local t = call('TIME')
    now = t[1] * 1000000 + t[2]
  end
  return now
end

local function num(n) return string.format('%.0f', n) end

-- mint makes the bucket's next token: a hybrid clock, so that tokens grow
-- though no record of a free name is kept, and also if the bucket is lost.
local function mint(bucket)
  local t = clock()
  local last = tonumber(call('SET', bucket, num(t), 'GET') or 0)
  if last < t then return num(t) end
  local token = num(last + 1)
  call('SET', bucket, token)
  return token
end

-- tell sends one message to the one client that it concerns; those of a cluster, whose
-- ids are longer, get it by a channel of the bucket. If it may not be sent, the next beat
-- or renewal says the same.
local function tell(rec, client, message)
  if #client == 16 then
    redis.pcall('PUBLISH', 'hfc:' .. client, message)
  else
    redis.pcall('SPUBLISH', 'hfc:' .. string.match(rec, '{%d+}') .. ':' .. client, message)
  end
end
