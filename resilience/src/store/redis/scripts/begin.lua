-- Begins an attempt against each of several tallies, or against none if one of them refuses it.
--
-- KEYS[i]  a tally
-- ARGV     for each: the lockout's numbers (see `rule_at`), the attempt's id and its origin
-- Returns  for each: 0 if it refuses nothing, 1 if it is locked, 2 if too many are under way; the attempts that may still
--          begin; and for how long it refuses

local ALLOWED, LOCKED, UNDER_WAY = 0, 1, 2
local tallies, rules, verdicts = {}, {}, {}
local arg = 1
local admitted = true

local function remaining(rule, tally)
  return tally.locked == 0 and math.max(rule.limit - #tally.failed - #tally.pending, 0) or 0
end

for i = 1, #KEYS do
  local rule
  rule, arg = rule_at(arg)
  rule.id, rule.origin = ARGV[arg], ARGV[arg + 1]
  arg = arg + 2
  local tally = open(KEYS[i], rule)
  local verdict = { ALLOWED, 0 }
  if tally.locked ~= 0 then
    verdict = { LOCKED, math.max(tally.locked - now, 1) }
  elseif remaining(rule, tally) == 0 and #tally.pending > 0 then
    local left = tally.pending[1].at + LEASE - now
    verdict = { UNDER_WAY, math.min(math.max(left, 1), BUSY_WAIT) }
  end
  rules[i], tallies[i], verdicts[i] = rule, tally, verdict
  admitted = admitted and verdict[1] == ALLOWED
end

local reply = {}
for i = 1, #KEYS do
  local rule, tally, verdict = rules[i], tallies[i], verdicts[i]
  if admitted then
    tally.pending[#tally.pending + 1] = { at = now, id = rule.id, origin = rule.origin }
    save(KEYS[i], tally, rule)
  elseif tally.cut or call('PTTL', KEYS[i]) == -1 then
    -- A lost expiry is set again: without it, the history of locks would be remembered for ever.
    save(KEYS[i], tally, rule)
  end
  reply[#reply + 1] = verdict[1]
  reply[#reply + 1] = remaining(rule, tally)
  reply[#reply + 1] = verdict[2]
end
return reply
