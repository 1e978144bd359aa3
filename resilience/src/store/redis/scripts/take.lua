-- Takes one from each of several quotas, or from none of them.
--
-- KEYS[i]  a client's count: "<window index>:<previous count>:<current count>"
-- ARGV     for each key: limit, window in milliseconds, "1" for a sliding window or "0" for a fixed one
-- Returns  for each key: 1 if it had room or 0, and its previous count, current count and milliseconds into the window,
--          all as they were before. They count one more now if every key had room.
--
-- Mirrors `Rule::count` and `Rule::room` of store/window.rs. Lua's numbers are exact up to 2^53, hence the products for
-- limit * window up to 9e15 (285,000 a year, 100 million a day); beyond, a decision on the very edge may be rounded.

local call = redis.call
-- The server's clock: the nodes' differ.
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local admitted = true
local indices, lifetimes, reply = {}, {}, {}

for i, key in ipairs(KEYS) do
  local limit, window, sliding = ARGV[3 * i - 2] + 0, ARGV[3 * i - 1] + 0, ARGV[3 * i] == '1'
  local elapsed = now % window
  local index = (now - elapsed) / window
  local previous, current = 0, 0
  local value = call('GET', key)
  if value then
    -- Anything else under this key counts as nothing, and is overwritten.
    local at, before, during = string.match(value, '^(%d+):(%d+):(%d+)$')
    at = tonumber(at)
    if at == index + 1 then
      -- The clock has stepped back over a boundary: stay in the window that has begun already.
      index, elapsed = at, 0
    end
    if at == index then
      previous, current = before + 0, during + 0
    elseif at == index - 1 then
      previous = during + 0
    end
  end
  if not sliding then
    previous = 0
  end

  local room = limit - current - 1
  local fits = room >= 0 and previous * (window - elapsed) <= room * window
  admitted = admitted and fits
  indices[i] = index
  lifetimes[i] = sliding and 2 * window - elapsed or window - elapsed
  local last = 4 * i
  reply[last - 3], reply[last - 2], reply[last - 1], reply[last] = fits and 1 or 0, previous, current, elapsed
end

for i, key in ipairs(KEYS) do
  if admitted then
    local value = indices[i] .. ':' .. reply[4 * i - 2] .. ':' .. reply[4 * i - 1] + 1
    call('SET', key, value, 'PX', lifetimes[i])
  elseif call('PTTL', key) == -1 then
    -- Somebody took its expiry away: without this, a client that is over its limit would be so for ever.
    call('PEXPIRE', key, lifetimes[i])
  end
end

return reply
