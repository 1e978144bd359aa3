-- Settles attempts.
--
-- KEYS[i]  a tally
-- ARGV     for each: the lockout's numbers (see `rule_at`), "clear", "back" or "fail", the attempt's id and its origin
-- Returns  how many tallies have changed

local changed = 0
local arg = 1

-- Takes an attempt under way off its list.
local function take(tally, id)
  for place, entry in ipairs(tally.pending) do
    if entry.id == id then
      return table.remove(tally.pending, place)
    end
  end
end

local function settle(tally, rule, what, id, origin)
  local pending = take(tally, id)
  if what == 'fail' then
    -- One that is not here has failed already, by its lease, or is no longer counted.
    if pending then
      fail(tally, rule, now, pending)
    end
    return pending ~= nil
  end
  local is_clear = what == 'clear'
  local failures, locks = #tally.failed, tally.locks
  local kept = {}
  -- Others of this origin that are under way are left to their own ends: they may be guesses.
  for _, entry in ipairs(tally.failed) do
    if entry.id ~= id and not (is_clear and is_same(entry.origin, origin)) then
      kept[#kept + 1] = entry
    end
  end
  tally.failed = kept
  if tally.locked ~= 0 and #kept < rule.limit then
    tally.locked, tally.locks = 0, math.max(tally.locks - 1, 0)
  end
  if tally.locks == 0 or (is_clear and is_same(tally.origin, origin)) then
    forget_locks(tally)
  end
  local differs = pending ~= nil or #kept ~= failures or tally.locks ~= locks
  expire(tally, rule, now)
  return differs
end

for i = 1, #KEYS do
  local rule
  rule, arg = rule_at(arg)
  local what, id, origin = ARGV[arg], ARGV[arg + 1], ARGV[arg + 2]
  arg = arg + 3
  local tally = open(KEYS[i], rule)
  if settle(tally, rule, what, id, origin) then
    save(KEYS[i], tally, rule)
    changed = changed + 1
  end
end
return changed
