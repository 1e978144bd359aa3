-- Settles attempts that do not stay counted.
--
-- KEYS[i]  a tally
-- ARGV     for each: its longest duration in milliseconds, "clear" or "back", and the attempt's id
-- Returns  how many tallies have changed

local changed = 0

for i = 1, #KEYS do
  local longest, what, id = ARGV[3 * i - 2] + 0, ARGV[3 * i - 1], ARGV[3 * i]
  if what == 'clear' then
    changed = changed + call('DEL', KEYS[i])
  else
    local tally = open(KEYS[i], longest)
    for place, attempt in ipairs(tally.attempts) do
      if attempt.id == id then
        table.remove(tally.attempts, place)
        -- The lock came of exactly as many attempts as it takes: without this one it has no ground.
        if tally.locked ~= 0 then
          tally.locked, tally.locks = 0, math.max(tally.locks - 1, 0)
        end
        if tally.locks == 0 then
          tally.remembered = 0
        end
        advance(tally, longest)
        save(KEYS[i], tally, longest)
        changed = changed + 1
        break
      end
    end
  end
end
return changed
