-- Extends each exact grant, or only looks.
-- KEYS: record; ARGV for each request: owner, token or "", TTL in ms or "0", new label
-- or "".
-- Answers: R ms, L lost, B ms reason.
local call, sub = redis.call, string.sub
-- include clock.lua

local rarely

-- learn writes the token of a grant, and since when it is, into its record.
local function learn(rec, v, token, ttl)
  local runs, window, rest = call('PTTL', rec), string.match(v, '^(%d+)( .*)$', 42)
  if runs <= 0 then return 'L' end -- its last ms: PEXPIRE would remove it, and SET make it one that never expires
  local since = num(clock() - (window - runs) * 1000)
  call('PEXPIRE', rec, num(math.max(ttl, runs))) -- first, as a full memory allows it
  call('SET', rec, sub(v, 1, 39) .. token .. ' ' .. since .. rest, 'KEEPTTL')
  return 'R' .. num(math.max(ttl, runs))
end

local function renew(i)
  local rec, owner, token, ttl, label = KEYS[i], ARGV[4 * i - 3], ARGV[4 * i - 2], ARGV[4 * i - 1], ARGV[4 * i]
  local v = call('GET', rec)
  if not v then return 'L' end
  if label ~= '' or sub(v, 1, 6) ~= 'hf1 x ' then return rarely(rec, v, owner, token, tonumber(ttl), label) end
  if sub(v, 7, 38) ~= owner then return 'L' end
  if token ~= '' and sub(v, 40, 40 + #token) ~= token .. ' ' then
    if sub(v, 40, 41) ~= '0 ' then return 'L' end
    return learn(rec, v, token, tonumber(ttl))
  end
  local runs = call('PTTL', rec)
  if tonumber(ttl) > runs then
    call('PEXPIRE', rec, ttl)
    return 'R' .. ttl
  end
  return 'R' .. num(runs)
end

local function library()
  -- include name.lua

  return function(rec, v, owner, token, ttl, label)
    local s = open(rec, v)
    local h = find(rec, s, owner, token)
    if not h then return 'L' end
    if h.broken ~= '' then return 'B' .. left(h) .. ' ' .. sub(h.broken, 2) end
    local ends, changed = now + ttl * 1000, false
    if ends > h.expires then h.expires, changed = ends, true end
    if label ~= '' then h.label, changed = label, true end
    if h.token == '0' and token ~= '' then h.token, changed = token, true end
    if changed and s.kind == 'x' then s.dirty = true end
    if changed and s.kind ~= 'x' then
      writeHolder(rec, s, owner, h)
      stretch(s, h.expires)
    end
    save(rec, s)
    return 'R' .. left(h)
  end
end

rarely = function(...)
  rarely = library()
  return rarely(...)
end

-- include each.lua
return each(1, renew)
