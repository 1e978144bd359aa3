-- Tallies of attempts: the common part of begin.lua, settle.lua and status.lua. Mirrors store/lockout/tally/mod.rs.
--
-- A tally is packed: the version of this format (1 byte), how many locks are remembered (4 bytes), until when it is locked
-- and until when the locks are remembered (8 each, milliseconds, 0 for never), the origin of the failures that led to the
-- locks (8), how many failures follow (2); then the failures and the attempts under way, each with its time (8), its id (8)
-- and its origin (8), in the order of their times. Ids and origins are compared as they are: they have more bits than
-- Lua's numbers. Records of the first format began with the number of locks, and had other lengths: they count as nothing.

local call = redis.call
-- The server's clock: the nodes' differ.
local time = call('TIME')
local now = time[1] * 1000 + (time[2] - time[2] % 1000) / 1000

local VERSION = 2
local HEADER, ENTRY = 31, 24
-- Milliseconds, as in mod.rs.
local LEASE, BUSY_WAIT = 30000, 1000
local NO_ORIGIN, MIXED = string.rep('\0', 8), string.rep('\255', 8)

-- Reads a lockout's numbers from ARGV: the failures that lock it, how many durations there are, and these in milliseconds
-- (the last is the longest). Returns the place after them, too.
local function rule_at(arg)
  local rule = { limit = ARGV[arg] + 0, durations = {} }
  local count = ARGV[arg + 1] + 0
  for nth = 1, count do
    rule.durations[nth] = ARGV[arg + 1 + nth] + 0
  end
  rule.longest = rule.durations[count]
  return rule, arg + 2 + count
end

local function is_same(one, other)
  return one == other and one ~= NO_ORIGIN and one ~= MIXED
end

local function forget_locks(tally)
  tally.locks, tally.remembered, tally.origin = 0, 0, NO_ORIGIN
end

-- Removes entries that have run out by `at`.
local function expire(tally, rule, at)
  if tally.locked ~= 0 and tally.locked <= at then
    tally.locked, tally.failed = 0, {}
  end
  if tally.locked == 0 and tally.remembered <= at then
    forget_locks(tally)
  end
  if tally.locked == 0 then
    local kept = {}
    for _, entry in ipairs(tally.failed) do
      if entry.at + rule.longest > at then
        kept[#kept + 1] = entry
      end
    end
    tally.failed = kept
  end
end

-- Counts a failure, and begins the lock if it reaches the limit.
local function fail(tally, rule, at, entry)
  expire(tally, rule, at)
  tally.failed[#tally.failed + 1] = { at = at, id = entry.id, origin = entry.origin }
  if #tally.failed < rule.limit or tally.locked ~= 0 then
    return
  end
  tally.locked = at + rule.durations[math.min(tally.locks + 1, #rule.durations)]
  tally.remembered = tally.locked + rule.longest
  local origin = tally.locks > 0 and tally.origin or tally.failed[1].origin
  for _, failed in ipairs(tally.failed) do
    if not is_same(origin, failed.origin) then
      origin = MIXED
    end
  end
  tally.origin = origin
  tally.locks = math.min(tally.locks + 1, 4294967295)
end

-- Brings a tally to now: expired entries are removed, and attempts whose lease has ended have failed.
local function advance(tally, rule)
  local longest = rule.longest
  -- Further ahead than any lock reaches: the clock has stepped back, or the durations are shorter than they were. That is
  -- to be saved, or the lock would begin anew with every look at it; so is an end of a lease, which is worked out once.
  tally.cut = tally.locked > now + longest
  tally.locked = math.min(tally.locked, now + longest)
  tally.remembered = math.min(tally.remembered, now + 2 * longest)
  for _, entry in ipairs(tally.failed) do
    entry.at = math.min(entry.at, now)
  end
  local pending = {}
  for _, entry in ipairs(tally.pending) do
    tally.cut = tally.cut or entry.at > now
    entry.at = math.min(entry.at, now)
    if entry.at + LEASE <= now then
      tally.cut = true
      fail(tally, rule, entry.at + LEASE, entry)
    else
      pending[#pending + 1] = entry
    end
  end
  tally.pending = pending
  expire(tally, rule, now)
end

local function open(key, rule)
  local tally = { locks = 0, locked = 0, remembered = 0, origin = NO_ORIGIN, failed = {}, pending = {} }
  local value = call('GET', key)
  -- Any other text under this key counts as nothing, and is overwritten. Another type is an error.
  if value and #value >= HEADER and (#value - HEADER) % ENTRY == 0 and string.byte(value) == VERSION then
    local failures
    tally.locks, tally.locked, tally.remembered = struct.unpack('>I4I8I8', value, 2)
    tally.origin = string.sub(value, 22, 29)
    failures = struct.unpack('>I2', value, 30)
    for from = HEADER + 1, #value, ENTRY do
      local entry = {
        at = struct.unpack('>I8', value, from),
        id = string.sub(value, from + 8, from + 15),
        origin = string.sub(value, from + 16, from + 23),
      }
      local entries = failures > 0 and tally.failed or tally.pending
      entries[#entries + 1] = entry
      failures = failures - 1
    end
  end
  advance(tally, rule)
  return tally
end

local function save(key, tally, rule)
  local expires = math.max(tally.locked, tally.remembered)
  local parts = {
    string.char(VERSION),
    struct.pack('>I4I8I8', tally.locks, tally.locked, tally.remembered),
    tally.origin,
    struct.pack('>I2', #tally.failed),
  }
  local function add(entry, counts)
    parts[#parts + 1] = struct.pack('>I8', entry.at)
    parts[#parts + 1] = entry.id
    parts[#parts + 1] = entry.origin
    expires = math.max(expires, entry.at + counts)
  end
  for _, entry in ipairs(tally.failed) do
    add(entry, rule.longest)
  end
  -- One that is never settled fails at the end of its lease, and may lead to a lock, which is remembered as long again.
  local may_lock = #tally.failed + #tally.pending >= rule.limit
  for _, entry in ipairs(tally.pending) do
    add(entry, LEASE + (may_lock and 2 or 1) * rule.longest)
  end
  if expires > now then
    call('SET', key, table.concat(parts), 'PX', expires - now)
  else
    call('DEL', key)
  end
end

