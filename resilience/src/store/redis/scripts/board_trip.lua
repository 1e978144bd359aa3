-- Counts the vote of an instance whose own breaker has opened, and opens for all if that makes the quorum.
--
-- ARGV[3]        the instance
-- ARGV[4] to [7] the opening, for how long it stays open, how many probes have failed, and why
-- ARGV[8]        how many votes it takes, if so many instances are alive
-- ARGV[9]        for how long a vote counts
-- ARGV[10]       how many instances were alive when this one looked last: the list of them may be lost
-- Returns        the entry

local name, instance = ARGV[1], ARGV[3]
see(instance)
make_room(KEYS[2])
call('ZADD', KEYS[2], now, name)
local quorum = math.max(math.min(ARGV[8] + 0, math.max(alive(), ARGV[10] + 0)), 1)

local slot = this_slot()
if not slot.hold and slot.circuit.state ~= 'open' and slot.circuit.state ~= 'newer' then
  local votes = slot.keys.votes
  make_room(votes)
  call('ZREMRANGEBYSCORE', votes, '-inf', now)
  call('ZADD', votes, now + ARGV[9], instance)
  -- Counted before they get their expiry, which may have come by the time that it is written.
  local count = call('ZCARD', votes)
  local last = call('ZRANGE', votes, -1, -1, 'WITHSCORES')
  call('PEXPIREAT', votes, last[2])
  if count >= quorum then
    write_open(slot, {
      id = ARGV[4],
      round = 0,
      since = now,
      open_for = ARGV[5] + 0,
      failed_probes = ARGV[6],
      reason = ARGV[7],
      by = instance,
    })
    publish()
  end
end
return entry(name, this_slot())
