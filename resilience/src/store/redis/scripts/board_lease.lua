-- Asks for the lease of the one probe that an opening has.
--
-- ARGV[3]  the instance
-- ARGV[4]  the opening
-- ARGV[5]  for how long
-- Returns  1 if the instance has it now or 0, and the entry

local name, instance, ttl = ARGV[1], ARGV[3], ARGV[5] + 0
local slot = this_slot()
local keys = slot.keys
local granted = 0
keep_time(slot)
if not slot.hold and is_present(slot.circuit, ARGV[4]) and due_in(slot.circuit) == 0 then
  if is_leased_to_others(slot, instance) then
    bound_lease(slot, ttl)
    call('SET', keys.wanted, instance, 'PX', WANTED_FOR)
  else
    granted = 1
    -- Whatever is under the key belongs to the instance, or to nobody.
    call('SET', keys.lease, instance, 'PX', ttl)
    if read('GET', keys.wanted) == instance then
      call('DEL', keys.wanted)
    end
  end
  remember(name)
end
return { granted, entry(name, this_slot()) }
