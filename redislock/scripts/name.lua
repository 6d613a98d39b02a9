-- The state of one name, as a table: docs/wire.md says how it is written.
--
--   kind     '-' nobody holds, 'x' exclusive, 's' shared, 'p' permits
--   limit    of a semaphore, 0: a lock
--   used, count, soonest   permits, holders, and when the first of them may
--            lapse (or earlier), if shared or permits
--   waiting  how many places there are. The queue holds them in order, and quit that gave
--            up; head have left it before. A place's number is head + its rank in it
--   last     until when any place or shared holder may live
--   owner, token, since, client, expires, label, broken   the exclusive
--            holder; of several holders, owner is the latest. token '0': not known yet
--   name     prefix and name, where the key does not tell
--   form     of the record as it was read; dirty: it must be written;
--            wrote: something of the name was
local nobody = string.rep('0', 32)
local placeTTL, slack = 30000000, 15000000

local function queueOf(rec) return 'hfq' .. sub(rec, 3) end
local function placesOf(rec) return 'hfp' .. sub(rec, 3) end
local function holdersOf(rec) return 'hfh' .. sub(rec, 3) end

local function free(name)
  return {
    kind = '-', limit = 0, used = 0, count = 0, soonest = 0, head = 0, quit = 0, waiting = 0, last = 0,
    owner = nobody, token = '0', since = '0', client = '0', expires = 0, label = '', broken = '', name = name,
  }
end

-- open reads the record v of a name. What we did not write is refused and never
-- touched.
local function open(rec, v)
  clock()
  if not v then return free('') end
  local s = free('')
  if sub(v, 1, 6) == 'hf1 x ' then
    s.kind, s.count, s.form = 'x', 1, 'x'
    s.owner, s.token, s.since, s.client, s.label, s.name = string.match(v, '^hf1 x (%x+) (%d+) (%d+) (%x+) ([^\n]*)\n?(.*)$')
    if s.owner then
      s.expires = now + call('PTTL', rec) * 1000
      if s.token == '0' then s.since = num(s.expires - s.since * 1000) end
      return s
    end
  elseif sub(v, 1, 6) == 'hf1 w ' then
    s.kind, s.count, s.form = 'x', 1, 'w'
    local expires, last, head, quit
    s.owner, s.token, expires, last, head, quit, s.since, s.client, s.label, s.name =
      string.match(v, '^hf1 w (%x+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%x+) ([^\n]*)\n(.*)$')
    if s.owner then
      s.token = string.match(s.token, '^0*(%d+)$')
      s.expires, s.last, s.head, s.quit = tonumber(expires), tonumber(last), tonumber(head), tonumber(quit)
      s.waiting = call('HLEN', placesOf(rec))
      return s
    end
  elseif sub(v, 1, 6) == 'hf1 q ' then
    local kind, limit, used, count, soonest, head, quit, last, rest =
      string.match(v, '^hf1 q (%S) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+)\n(.*)$')
    s.form, s.kind = 'q', kind
    s.limit, s.used, s.count, s.soonest = tonumber(limit), tonumber(used), tonumber(count), tonumber(soonest)
    s.head, s.quit, s.last = tonumber(head), tonumber(quit), tonumber(last)
    s.owner, s.token, s.since, s.client, s.expires, s.label, s.broken, s.name =
      string.match(rest or '', '^(%x+) (%d+) (%d+) (%x+) (%d+) ([^\n]*)\n([^\n]*)\n(.*)$')
    if s.owner then
      s.expires, s.waiting = tonumber(s.expires), call('HLEN', placesOf(rec))
      return s
    end
  end
  error('WRONGTYPE the key ' .. rec .. ' holds no record of ours', 0)
end

-- ends is until when the record has to live, in ms.
local function ends(s)
  local t = s.last
  if s.kind == 'x' and s.expires > t then t = s.expires end
  return num(math.ceil(t / 1000))
end

-- touch makes the first write to a name that is there one that a full memory allows, as it
-- allows all others then: so what there is can be kept, and released.
local function touch(rec, s)
  if s.form and not s.wrote then call('PEXPIREAT', rec, ends(s)) end
  s.wrote = true
end

-- save writes the state, or nothing if the name is free.
local function save(rec, s)
  if not s.dirty then return end
  if s.waiting == 0 and s.form and s.form ~= 'x' then
    call('DEL', queueOf(rec), placesOf(rec)) -- only some that gave up are left
    s.head, s.quit, s.wrote = 0, 0, true
  end
  if s.kind == '-' and s.waiting == 0 then
    if s.form then call('DEL', rec) end -- the last holder took his key with him
    return
  end
  touch(rec, s)
  local v
  local plain = s.kind == 'x' and s.broken == '' and s.limit == 0
  if plain and s.waiting == 0 then
    local since = s.since
    if s.token == '0' then since = num(math.max(0, math.floor((s.expires - since) / 1000))) end
    v = 'hf1 x ' .. s.owner .. ' ' .. s.token .. ' ' .. since .. ' ' .. s.client .. ' ' .. s.label
    if s.name ~= '' then v = v .. '\n' .. s.name end
    call('SET', rec, v, 'PX', num(math.max(1, math.ceil((s.expires - now) / 1000))))
    return
  end
  if plain and #num(now) == 16 and #num(s.expires) == 16 and s.quit < 1000000 then
    v = string.format('hf1 w %s %016.0f %.0f %016.0f %012.0f %06.0f %s %s %s', s.owner, tonumber(s.token), s.expires, s.last, s.head, s.quit,
      s.since, s.client, s.label) .. '\n' .. s.name
  else
    v = table.concat({
      'hf1 q', s.kind, s.limit, num(s.used), num(s.count), num(s.soonest), num(s.head), num(s.quit), num(s.last),
    }, ' ') .. '\n' .. s.owner .. ' ' .. s.token .. ' ' .. s.since .. ' ' .. s.client .. ' ' .. num(s.expires) .. ' ' .. s.label .. '\n' ..
      s.broken .. '\n' .. s.name
  end
  local last = ends(s)
  call('SET', rec, v, 'PXAT', last)
  if s.stretched then
    if s.waiting > 0 then
      call('PEXPIREAT', queueOf(rec), last)
      call('PEXPIREAT', placesOf(rec), last)
    end
    if s.kind == 's' or s.kind == 'p' then call('PEXPIREAT', holdersOf(rec), last) end
  end
end

-- stretch makes the keys of the name live until t at least; not every call
-- needs to write for it.
local function stretch(s, t)
  if s.last < t then s.last, s.stretched, s.dirty = t + slack, true, true end
end

local function readHolder(v)
  local token, since, client, expires, n, label, broken = string.match(v, '^(%d+) (%d+) (%x+) (%d+) (%d+) ([^\n]*)\n(.*)$')
  return { token = token, since = since, client = client, expires = tonumber(expires), n = tonumber(n), label = label, broken = broken }
end

-- set sets a field of what goes with a name. If memory is full, it may have to touch it first.
local function set(rec, s, key, field, v)
  if type(redis.pcall('HSET', key, field, v)) == 'table' then
    touch(rec, s)
    call('HSET', key, field, v)
  end
end

local function writeHolder(rec, s, field, h)
  set(rec, s, holdersOf(rec), field,
    h.token .. ' ' .. h.since .. ' ' .. h.client .. ' ' .. num(h.expires) .. ' ' .. num(h.n) .. ' ' .. h.label .. '\n' .. h.broken)
end

-- drop takes a holder out.
local function drop(rec, s, field, h)
  s.dirty = true
  if s.kind == 'x' then
    s.kind, s.count, s.owner, s.broken = '-', 0, nobody, ''
    return
  end
  call('HDEL', holdersOf(rec), field)
  s.count, s.used = s.count - 1, s.used - h.n
  if s.count <= 0 then s.kind, s.count, s.used, s.soonest = '-', 0, 0, 0 end
end

-- lapse drops the holders whose time is over. Several are only looked through
-- when the first of them can have lapsed.
local function lapse(rec, s)
  if s.kind == 'x' then
    if s.expires <= now then drop(rec, s) end
    return
  end
  if s.kind == '-' or s.soonest > now then return end
  local all = call('HGETALL', holdersOf(rec))
  s.dirty, s.count, s.used, s.soonest = true, 0, 0, 0
  for i = 1, #all, 2 do
    local h = readHolder(all[i + 1])
    if h.expires <= now then
      call('HDEL', holdersOf(rec), all[i])
    else
      s.count, s.used = s.count + 1, s.used + h.n
      if s.soonest == 0 or h.expires < s.soonest then s.soonest = h.expires end
    end
  end
  if s.count == 0 then s.kind = '-' end
end

-- admits tells whether one more hold conflicts with none there is.
local function admits(s, mode, n)
  if s.kind == '-' then return mode ~= 'p' or n <= s.limit end
  if s.kind == 'x' or mode == 'x' then return false end
  return mode == 's' or s.used + n <= s.limit
end

-- grant makes p a holder for so many ms, with a token from the same step.
local function grant(rec, bucket, s, p, window)
  local token = mint(bucket)
  s.dirty = true
  local h = { token = token, since = num(now), client = p.client, expires = now + window * 1000, n = p.n, label = p.label, broken = '' }
  if p.mode == 'x' then
    s.kind, s.count, s.owner, s.token, s.since, s.client, s.label, s.expires =
      'x', 1, p.owner, token, num(now), p.client, p.label, h.expires
    return token
  end
  if s.kind == '-' then
    call('DEL', holdersOf(rec))
    s.stretched = true
  end
  writeHolder(rec, s, p.owner, h)
  s.kind, s.count, s.used, s.owner, s.token = p.mode, s.count + 1, s.used + p.n, p.owner, token
  if s.soonest == 0 or h.expires < s.soonest then s.soonest = h.expires end
  stretch(s, h.expires)
  return token
end

-- A place as it stands in the queue ('-': of one that gave up), and its number and, once
-- beaten, until when it counts, as its owner finds them.
local function place(p)
  return string.format('%s %s %016.0f %08.0f %.0f %s %s', p.owner, p.mode, tonumber(p.since), p.claim, p.n, p.client, p.label)
end

local function numberOf(v) return tonumber(string.match(v, '^%d+')) end

local function readPlace(v)
  local owner, mode, since, claim, n, client, label = string.match(v, '^(%x+) (%a) (%d+) (%d+) (%d+) (%x+) (.*)$')
  return { owner = owner, mode = mode, n = tonumber(n), claim = tonumber(claim), client = client, since = since, label = label }
end

-- alive tells whether a place still counts.
local function alive(rec, p)
  if tonumber(p.since) + placeTTL > now then return true end
  return tonumber(string.match(call('HGET', placesOf(rec), p.owner) or '', ' (%d+)$') or 0) > now
end

-- advance drops what has lapsed and grants the head of the queue, and those
-- behind it as far as they fit, strictly in order. Places of the dead are
-- dropped when they come to the head.
local function advance(rec, bucket, s)
  lapse(rec, s)
  while s.waiting > 0 and s.kind ~= 'x' do
    local v = call('LINDEX', queueOf(rec), 0)
    if not v then -- the queue is gone, which nobody of ours does
      call('DEL', placesOf(rec))
      s.waiting, s.dirty, s.wrote = 0, true, true
      return
    end
    local p = v ~= '-' and readPlace(v)
    local lives = p and alive(rec, p)
    if lives and not admits(s, p.mode, p.n) then return end
    call('LPOP', queueOf(rec))
    s.head, s.dirty, s.wrote = s.head + 1, true, true
    if p then
      call('HDEL', placesOf(rec), p.owner)
      s.waiting = s.waiting - 1
    else
      s.quit = s.quit - 1
    end
    if lives then
      local token = grant(rec, bucket, s, p, p.claim)
      tell(rec, p.client, 'g ' .. p.owner .. ' ' .. token .. ' ' .. num(p.claim))
    end
  end
end

-- find returns the holder of that owner, and its token if one is given.
local function find(rec, s, owner, token)
  local h
  if s.kind == 'x' then
    if s.owner == owner then h = s end
  elseif s.kind ~= '-' then
    local v = call('HGET', holdersOf(rec), owner)
    h = v and readHolder(v)
  end
  if h and h.expires > now and (token == '' or token == h.token or h.token == '0') then return h end
end

local function left(h) return num(math.max(0, math.floor((h.expires - now) / 1000))) end

-- look is what an attempt or a beat learns: how many are ahead, how long the
-- present grant runs, and who holds.
local function look(rec, s, ahead)
  local ends, holder = s.expires, ''
  if s.kind == 'x' then
    holder = s.owner .. ' ' .. s.token .. ' ' .. s.since .. ' ' .. s.client .. ' ' .. num(s.expires) .. ' 0 ' .. s.label .. '\n' .. s.broken
  elseif s.kind ~= '-' then
    ends = s.soonest
    local v = call('HGET', holdersOf(rec), s.owner)
    if v then holder = s.owner .. ' ' .. v end
  end
  return num(ahead) .. ' ' .. left({ expires = ends }) .. ' ' .. num(now) .. ' ' .. s.kind .. ' ' .. holder
end

local function ahead(s, number) return math.max(0, math.min(number - s.head, s.waiting) - 1) end
