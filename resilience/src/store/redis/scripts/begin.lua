-- Counts an attempt against each of several tallies, or against none if one of them is locked.
--
-- KEYS[i]  a tally
-- ARGV     for each: the attempts that lock it, how many durations there are, these in milliseconds (the last is the
--          longest), and the attempt's id
-- Returns  for each: 1 if it is not locked or 0, the attempts that may still begin, and for how long it is locked

local tallies, rules = {}, {}
local arg = 1
local admitted = true

for i = 1, #KEYS do
  local rule = { limit = ARGV[arg] + 0, durations = {} }
  local count = ARGV[arg + 1] + 0
  for nth = 1, count do
    rule.durations[nth] = ARGV[arg + 1 + nth] + 0
  end
  rule.longest = rule.durations[count]
  rule.id = ARGV[arg + 2 + count]
  arg = arg + 3 + count
  rules[i], tallies[i] = rule, open(KEYS[i], rule.longest)
  admitted = admitted and tallies[i].locked == 0
end

local reply = {}
for i = 1, #KEYS do
  local rule, tally = rules[i], tallies[i]
  local fits = tally.locked == 0
  if admitted then
    tally.attempts[#tally.attempts + 1] = { at = now, id = rule.id }
    if #tally.attempts >= rule.limit then
      tally.locked = now + rule.durations[math.min(tally.locks + 1, #rule.durations)]
      tally.remembered = tally.locked + rule.longest
      tally.locks = math.min(tally.locks + 1, 4294967295)
    end
    save(KEYS[i], tally, rule.longest)
  elseif tally.cut or call('PTTL', KEYS[i]) == -1 then
    -- Or somebody took its expiry away: without this, the history of its locks would be remembered for ever.
    save(KEYS[i], tally, rule.longest)
  end
  local remaining = tally.locked == 0 and math.max(rule.limit - #tally.attempts, 0) or 0
  reply[#reply + 1] = fits and 1 or 0
  reply[#reply + 1] = remaining
  reply[#reply + 1] = fits and 0 or math.max(tally.locked - now, 1)
end
return reply
