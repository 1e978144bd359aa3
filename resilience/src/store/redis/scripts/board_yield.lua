-- Gives the instance's lease back.
--
-- ARGV[3]  the instance
-- Returns  1 if the instance had it or 0

local keys = this_slot().keys
if read('GET', keys.lease) ~= ARGV[3] then
  return 0
end
call('DEL', keys.lease, keys.wanted)
publish()
return 1
