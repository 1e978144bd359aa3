-- How a tally stands. Changes nothing.
--
-- KEYS[1]  the tally
-- ARGV[1]  its longest duration in milliseconds
-- Returns  the attempts that count, for how long it is locked (0 if it is not), and the locks that are remembered

local tally = open(KEYS[1], ARGV[1] + 0)
return { #tally.attempts, tally.locked == 0 and 0 or math.max(tally.locked - now, 1), tally.locks }
