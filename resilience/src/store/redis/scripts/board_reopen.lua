-- A probe has failed: gives back the instance's lease, and opens the opening for another while if it is present.
--
-- ARGV[3]        the instance
-- ARGV[4] to [7] the opening, for how long it stays open, how many probes have failed, and why
-- ARGV[8]        when it opened first, if that is known
-- Returns        the entry

local name, instance = ARGV[1], ARGV[3]
local slot = this_slot()
if not is_leased_to_others(slot, instance) then
  local changed = call('DEL', slot.keys.lease) == 1
  local circuit = slot.circuit
  if not slot.hold and is_present(circuit, ARGV[4]) and circuit.state ~= 'newer' then
    local is_open = circuit.state == 'open'
    write_open(slot, {
      id = ARGV[4],
      round = is_open and circuit.round + 1 or 1,
      since = is_open and circuit.since or math.min(ARGV[8] or now, now),
      open_for = ARGV[5] + 0,
      failed_probes = ARGV[6],
      reason = ARGV[7],
      by = instance,
    })
    changed = true
  end
  if changed then
    publish()
  end
end
return entry(name, this_slot())
