-- The state of a tally. Changes nothing.
--
-- KEYS[1]  the tally
-- ARGV     the lockout's numbers (see `rule_at`)
-- Returns  the failures that count, the attempts under way, for how long it is locked (0 if it is not), and the locks that
--          are remembered

local rule = rule_at(1)
local tally = open(KEYS[1], rule)
local locked_for = tally.locked == 0 and 0 or math.max(tally.locked - now, 1)
return { #tally.failed, #tally.pending, locked_for, tally.locks }
