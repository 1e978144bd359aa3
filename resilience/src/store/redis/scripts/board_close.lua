-- A probe has succeeded: takes back the instance's vote, gives back its lease, and closes the opening if it is present.
--
-- ARGV[3]  the instance
-- ARGV[4]  why
-- ARGV[5]  the opening; without it, nothing is closed
-- Returns  the entry

local name, instance, opening = ARGV[1], ARGV[3], ARGV[5]
local slot = this_slot()
read('ZREM', slot.keys.votes, instance)
if not is_leased_to_others(slot, instance) then
  local changed = call('DEL', slot.keys.lease) == 1
  if opening and not slot.hold and is_present(slot.circuit, opening) and slot.circuit.state ~= 'newer' then
    write_closed(slot, opening, ARGV[4], instance)
    changed = true
  end
  if changed then
    publish()
  end
end
return entry(name, this_slot())
