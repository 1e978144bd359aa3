-- Holds a breaker, or lets go of it.
--
-- ARGV[3] to [5]  open or closed, why, and who says so; without them, it is let go
-- ARGV[6]         for how long; without it, until it is let go
-- Returns         1 if it was held before or 0

local name, state, author = ARGV[1], ARGV[3], ARGV[5]
local slot = this_slot()
local keys = slot.keys
local changed = call('DEL', keys.hold) == 1

if state then
  call('HSET', keys.hold, 'v', 1, 'state', state, 'reason', ARGV[4], 'author', author, 'since', now)
  if ARGV[6] then
    call('HSET', keys.hold, 'until', now + ARGV[6])
    call('PEXPIREAT', keys.hold, now + ARGV[6])
  end
  call('DEL', keys.votes, keys.lease, keys.wanted)
  local last = slot.circuit.state
  if last == 'open' then
    write_closed(slot, slot.circuit.id, 'held ' .. state, author)
  elseif last == 'broken' or last == 'newer' then
    -- It may be an opening, and nobody is to find it there when the breaker is let go.
    call('DEL', keys.circuit)
  end
  make_room(KEYS[2])
  call('ZADD', KEYS[2], now, name)
  changed = true
end
if changed then
  publish()
end
return slot.hold and 1 or 0
