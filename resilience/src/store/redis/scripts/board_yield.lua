-- Gives the instance's lease back.
--
-- ARGV[3]  the instance
-- ARGV[4]  for how long to extend it instead, if nobody else has asked for it
-- Returns  1 if the instance still has it or 0

local keys = this_slot().keys
if read('GET', keys.lease) ~= ARGV[3] then
  return 0
end
if ARGV[4] and call('EXISTS', keys.wanted) == 0 then
  call('PEXPIRE', keys.lease, ARGV[4])
  return 1
end
call('DEL', keys.lease, keys.wanted)
publish()
return 0
