-- A probe has failed: gives back the instance's lease, and opens the opening for another while if it is present.
--
-- ARGV[3]        the instance
-- ARGV[4] to [7] the opening, for how long it stays open, how many probes have failed, and why
-- ARGV[8]        in which round of the opening the probe has failed
-- ARGV[9]        when it opened first, if that is known
-- Returns        the entry

local name, instance = ARGV[1], ARGV[3]
local slot = this_slot()
if not is_leased_to_others(slot, instance) then
  local changed = call('DEL', slot.keys.lease) == 1
  local circuit, round = slot.circuit, ARGV[8] + 0
  local is_open = circuit.state == 'open'
  -- Another round: said once already, or of a probe long ago.
  local is_this = is_present(circuit, ARGV[4]) and (not is_open or circuit.round == round)
  if not slot.hold and is_this and circuit.state ~= 'newer' then
    write_open(slot, {
      id = ARGV[4],
      round = round + 1,
      since = is_open and circuit.since or math.min(ARGV[9] or now, now),
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
