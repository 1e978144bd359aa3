-- Tallies of attempts: what begin.lua, settle.lua and status.lua have in common. Mirrors store/lockout/tally.rs.
--
-- A tally is packed: how many locks are remembered (4 bytes), until when it is locked and until when the locks are
-- remembered (8 each, milliseconds, 0 for never), and for each attempt its time (8) and its id (8). Ids are compared as
-- they are: they have more bits than Lua's numbers.

local call = redis.call
-- The server's clock: the nodes' differ.
local time = call('TIME')
local now = time[1] * 1000 + (time[2] - time[2] % 1000) / 1000

-- Brings a tally to now: what has run out is gone.
local function advance(tally, longest)
  -- Further ahead than any lock reaches: the clock has stepped back, or the durations are shorter than they were. That is
  -- to be saved, or the lock would begin anew with every look at it.
  tally.cut = tally.locked > now + longest
  tally.locked = math.min(tally.locked, now + longest)
  tally.remembered = math.min(tally.remembered, now + 2 * longest)
  if tally.locked ~= 0 and tally.locked <= now then
    tally.locked, tally.attempts = 0, {}
  end
  if tally.locked == 0 and tally.remembered <= now then
    tally.locks, tally.remembered = 0, 0
  end
  local kept = {}
  for _, attempt in ipairs(tally.attempts) do
    attempt.at = math.min(attempt.at, now)
    if tally.locked ~= 0 or attempt.at + longest > now then
      kept[#kept + 1] = attempt
    end
  end
  tally.attempts = kept
end

local function open(key, longest)
  local tally = { locks = 0, locked = 0, remembered = 0, attempts = {} }
  local value = call('GET', key)
  -- Any other text under this key counts as nothing, and is overwritten. Another type is an error of whoever put it there.
  if value and #value >= 20 and (#value - 20) % 16 == 0 then
    tally.locks, tally.locked, tally.remembered = struct.unpack('>I4I8I8', value)
    for from = 21, #value, 16 do
      local at = struct.unpack('>I8', value, from)
      tally.attempts[#tally.attempts + 1] = { at = at, id = string.sub(value, from + 8, from + 15) }
    end
  end
  advance(tally, longest)
  return tally
end

local function save(key, tally, longest)
  local expires = math.max(tally.locked, tally.remembered)
  local parts = { struct.pack('>I4I8I8', tally.locks, tally.locked, tally.remembered) }
  for _, attempt in ipairs(tally.attempts) do
    parts[#parts + 1] = struct.pack('>I8', attempt.at)
    parts[#parts + 1] = attempt.id
    expires = math.max(expires, attempt.at + longest)
  end
  if expires > now then
    call('SET', key, table.concat(parts), 'PX', expires - now)
  else
    call('DEL', key)
  end
end

