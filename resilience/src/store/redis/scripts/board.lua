-- Boards of shared breakers: what the other board_*.lua have in common. Mirrors store/board/slate.rs.
--
-- KEYS[1] and [2]  the system's instances and names, by when they were last seen (and names that lie in no list, at 0)
--
-- Those of one breaker only:
--
-- KEYS[3] to [7]   its circuit, hold, votes, lease, and who wants that
-- ARGV[1] and [2]  its name, and the channel of the system's changes
--
-- Times are in milliseconds of the server's clock, as numbers exact to the year 30,000 and beyond. What lies here for long
-- is read by the times in it: an expiry only takes away what has run out anyway, and may be lost.

local FORGOTTEN_AFTER = 600000
local CLOSING_KEPT = 86400000
local ALIVE_FOR = 60000
local WANTED_FOR = 3000
local NAME_KEPT = 604800000
-- A lease that lasts longer than this, and than what is asked for now, comes of a clock that was set back.
local LONG_LEASE = 600000

local call = redis.call
local time = call('TIME')
local now = time[1] * 1000 + (time[2] - time[2] % 1000) / 1000

-- What a key of the right type says; nil if it has another.
local function read(...)
  local reply = redis.pcall(...)
  if type(reply) ~= 'table' or not reply.err then
    return reply
  end
  if not string.find(reply.err, 'WRONGTYPE', 1, true) then
    -- Fails again, as errors do that are no content's.
    return call(...)
  end
end

-- Makes room for a sorted set: something else under its key is of no use to anybody.
local function make_room(key)
  local kind = call('TYPE', key).ok
  if kind ~= 'zset' and kind ~= 'none' then
    call('DEL', key)
  end
end

local function whole(text)
  return text and #text <= 15 and string.find(text, '^%d+$') and text + 0
end

-- `broken` and `newer` are the states of a circuit that cannot be read.
local function read_circuit(key)
  local fields = read('HMGET', key, 'v', 'state', 'id', 'round', 'since', 'until', 'open_for', 'failed_probes', 'reason',
    'by')
  if not fields then
    return { state = 'broken' }
  end
  local version = whole(fields[1])
  if version and version > 1 then
    return { state = 'newer' }
  end
  local circuit = {
    state = fields[2],
    id = fields[3],
    round = whole(fields[4]),
    since = whole(fields[5]),
    ends = whole(fields[6]),
    open_for = whole(fields[7]),
    failed_probes = whole(fields[8]),
    reason = fields[9],
    by = fields[10],
  }
  local is_record = version == 1 and circuit.id and circuit.since and circuit.reason and circuit.by
  if is_record and circuit.state == 'closed' then
    return now < circuit.since + CLOSING_KEPT and circuit or { state = 'none' }
  end
  local is_opening = circuit.round and circuit.ends and circuit.open_for and circuit.failed_probes
  if is_record and is_opening and circuit.state == 'open' then
    -- A clock that was set back must not keep it open for longer than it was to be.
    circuit.is_late = circuit.ends > now + circuit.open_for
    circuit.ends = math.min(circuit.ends, now + circuit.open_for)
    return now < circuit.ends + FORGOTTEN_AFTER and circuit or { state = 'none' }
  end
  return { state = call('EXISTS', key) == 1 and 'broken' or 'none' }
end

local function read_hold(key)
  local fields = read('HMGET', key, 'v', 'state', 'reason', 'author', 'since', 'until')
  if not fields or fields[1] ~= '1' then
    return nil
  end
  local hold = {
    state = fields[2],
    reason = fields[3],
    author = fields[4],
    since = whole(fields[5]),
    ends = whole(fields[6]),
  }
  local has_state = hold.state == 'open' or hold.state == 'closed'
  if not (has_state and hold.reason and hold.author and hold.since) or (fields[6] and not hold.ends) then
    return nil
  end
  return (not hold.ends or now < hold.ends) and hold or nil
end

local function read_slot(circuit, hold, votes, lease, wanted)
  return {
    keys = { circuit = circuit, hold = hold, votes = votes, lease = lease, wanted = wanted },
    circuit = read_circuit(circuit),
    hold = read_hold(hold),
    owner = read('GET', lease) or nil,
    is_wanted = call('EXISTS', wanted) == 1,
  }
end

local function due_in(circuit)
  return circuit.state == 'open' and math.max(circuit.ends - now, 0) or 0
end

-- Whether this may be the present opening: it is, or nothing is known.
local function is_present(circuit, opening)
  return circuit.state ~= 'closed' and (circuit.state ~= 'open' or circuit.id == opening)
end

local function is_leased_to_others(slot, instance)
  return slot.owner and slot.owner ~= instance
end

-- Of the breaker that is looked at; looking at it again shows what was written meanwhile.
local function this_slot()
  return read_slot(KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7])
end

local function entry(name, slot)
  local circuit, hold = slot.circuit, slot.hold
  local last = {}
  if circuit.state == 'open' then
    last = { 'open', circuit.id, circuit.round, circuit.since, due_in(circuit), circuit.failed_probes, circuit.reason,
      circuit.by }
  elseif circuit.state == 'closed' then
    last = { 'closed', circuit.id, circuit.since, circuit.reason, circuit.by }
  elseif circuit.state ~= 'none' then
    last = { 'unreadable' }
  end
  local order = {}
  if hold then
    order = { hold.state, hold.reason, hold.author, hold.since, hold.ends and hold.ends - now or -1 }
  end
  return { name, last, order, slot.owner and 1 or 0, slot.is_wanted and 1 or 0 }
end

-- Says who is here.
local function see(instance)
  make_room(KEYS[1])
  call('ZADD', KEYS[1], now, instance)
  call('PEXPIRE', KEYS[1], ALIVE_FOR)
end

-- How many are, without those who have gone.
local function alive()
  call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ALIVE_FOR)
  return call('ZCARD', KEYS[1])
end

-- Lets a name be found for as long as there is anything under it.
local function remember(name)
  make_room(KEYS[2])
  call('ZADD', KEYS[2], 'NX', 0, name)
end

local function publish()
  -- Who may not publish has others poll.
  redis.pcall('PUBLISH', ARGV[2], ARGV[1])
end

local function write_open(slot, opening)
  local keys = slot.keys
  call('DEL', keys.votes, keys.lease, keys.wanted, keys.circuit)
  local ends = now + opening.open_for
  call('HSET', keys.circuit, 'v', 1, 'state', 'open', 'id', opening.id, 'round', opening.round, 'since', opening.since,
    'until', ends, 'open_for', opening.open_for, 'failed_probes', opening.failed_probes, 'reason', opening.reason,
    'by', opening.by)
  call('PEXPIREAT', keys.circuit, ends + FORGOTTEN_AFTER)
  remember(ARGV[1])
end

local function write_closed(slot, id, reason, by)
  local keys = slot.keys
  call('DEL', keys.votes, keys.wanted, keys.circuit)
  call('HSET', keys.circuit, 'v', 1, 'state', 'closed', 'id', id, 'since', now, 'reason', reason, 'by', by)
  call('PEXPIREAT', keys.circuit, now + CLOSING_KEPT)
  remember(ARGV[1])
end

-- An opening that was to end later than it may does so from now on, or it would begin anew with every look at it.
local function keep_time(slot)
  local circuit = slot.circuit
  if circuit.is_late then
    call('HSET', slot.keys.circuit, 'until', circuit.ends)
    call('PEXPIREAT', slot.keys.circuit, circuit.ends + FORGOTTEN_AFTER)
  end
end

-- A lease ends, whatever has become of its expiry.
local function bound_lease(slot, ttl)
  local left = call('PTTL', slot.keys.lease)
  if left == -1 or left > math.max(ttl, LONG_LEASE) then
    call('PEXPIRE', slot.keys.lease, ttl)
  end
end

