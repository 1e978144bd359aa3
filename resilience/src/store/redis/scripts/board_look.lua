-- Reads all entries of a system, and says who is here.
--
-- ARGV[1]  what all keys of the system begin with
-- ARGV[2]  the instance that is here, then the names of its breakers; without it, nothing is written
-- Returns  how many instances are alive, then the entries

local is_here = #ARGV > 1

if is_here then
  see(ARGV[2])
  make_room(KEYS[2])
  for i = 3, #ARGV do
    call('ZADD', KEYS[2], now, ARGV[i])
  end
end

-- Gives what has lost its expiry one again.
local function heal(slot, votes_end)
  local circuit, hold, keys = slot.circuit, slot.hold, slot.keys
  keep_time(slot)
  if circuit.state == 'open' and call('PTTL', keys.circuit) == -1 then
    call('PEXPIREAT', keys.circuit, circuit.ends + FORGOTTEN_AFTER)
  elseif circuit.state == 'closed' and call('PTTL', keys.circuit) == -1 then
    call('PEXPIREAT', keys.circuit, circuit.since + CLOSING_KEPT)
  end
  if hold and hold.ends and call('PTTL', keys.hold) == -1 then
    call('PEXPIREAT', keys.hold, hold.ends)
  end
  if slot.owner and call('PTTL', keys.lease) == -1 then
    -- Far longer than it was to be, perhaps; but nobody else is to probe while its holder still does.
    call('PEXPIRE', keys.lease, LONG_LEASE)
  end
  if votes_end and call('PTTL', keys.votes) == -1 then
    call('PEXPIREAT', keys.votes, votes_end)
  end
  if slot.is_wanted and call('PTTL', keys.wanted) == -1 then
    call('PEXPIRE', keys.wanted, WANTED_FOR)
  end
end

local reply = { 0 }
local names = read('ZRANGE', KEYS[2], 0, -1, 'WITHSCORES') or {}
for i = 1, #names, 2 do
  local name, seen = names[i], names[i + 1] + 0
  local function key(kind)
    return ARGV[1] .. kind .. name
  end
  local slot = read_slot(key('circuit:'), key('hold:'), key('votes:'), key('lease:'), key('wanted:'))
  local votes = read('ZRANGE', slot.keys.votes, -1, -1, 'WITHSCORES') or {}
  local votes_end = #votes == 2 and votes[2] + 0 or nil
  local listed = now < seen + NAME_KEPT
    or slot.circuit.state ~= 'none'
    or slot.hold
    or slot.owner
    or votes_end and now < votes_end
    or slot.is_wanted
  if listed then
    reply[#reply + 1] = entry(name, slot)
    if is_here then
      heal(slot, votes_end)
    end
  elseif is_here then
    call('ZREM', KEYS[2], name)
  end
end

if is_here then
  reply[1] = alive()
else
  reply[1] = read('ZCOUNT', KEYS[1], string.format('(%.0f', now - ALIVE_FOR), '+inf') or 0
end
return reply
