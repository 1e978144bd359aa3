-- Takes one from each of several quotas, or from none of them.
--
-- KEYS[i]  a client's count: window index, previous count and current count, packed in 16 bytes
-- ARGV     for each key: limit, window in milliseconds, "1" for a sliding window or "0" for a fixed one
-- Returns  for each key: 1 if it had room or 0, and its previous count, current count and milliseconds into the window,
--          all as they were before. They count one more now if every key had room.
--
-- Mirrors `Rule::count` and `Rule::room` of store/window.rs. Lua's numbers are exact up to 2^53, hence the products for
-- limit * window up to 9e15 (285,000 a year, 100 million a day); beyond, a decision on the very edge may be rounded.
--
-- Redis runs this on its only thread: two thirds of a call are Lua. Packed counts spare a fifth of it against text, since
-- no strings are cut, and the writes are prepared in the first loop for the same reason.

local call = redis.call
-- The server's clock: the nodes' differ.
local time = call('TIME')
local now = time[1] * 1000 + (time[2] - time[2] % 1000) / 1000
local admitted = true
local reply, writes = {}, {}

for i = 1, #KEYS do
  local limit, window, sliding = ARGV[3 * i - 2], ARGV[3 * i - 1] + 0, ARGV[3 * i] == '1'
  local elapsed = now % window
  local index = (now - elapsed) / window
  local previous, current = 0, 0
  local value = call('GET', KEYS[i])
  -- Anything else under this key counts as nothing, and is overwritten.
  if value and #value == 16 then
    local at, before, during = struct.unpack('>I8I4I4', value)
    if at == index + 1 then
      -- The clock has stepped back over a boundary: stay in the window that has begun already.
      index, elapsed = at, 0
    end
    if at == index then
      previous, current = before, during
    elseif at == index - 1 then
      previous = during
    end
  end
  if not sliding then
    previous = 0
  end

  local room = limit - current - 1
  local fits = room >= 0 and previous * (window - elapsed) <= room * window
  admitted = admitted and fits
  local last = 4 * i
  reply[last - 3], reply[last - 2], reply[last - 1], reply[last] = fits and 1 or 0, previous, current, elapsed
  writes[2 * i - 1] = struct.pack('>I8I4I4', index, previous, current + 1)
  writes[2 * i] = sliding and 2 * window - elapsed or window - elapsed
end

for i = 1, #KEYS do
  local value, lifetime = writes[2 * i - 1], writes[2 * i]
  if admitted then
    call('SET', KEYS[i], value, 'PX', lifetime)
  elseif call('PTTL', KEYS[i]) == -1 then
    -- Somebody took its expiry away: without this, a client that is over its limit would be so for ever.
    call('PEXPIRE', KEYS[i], lifetime)
  end
end

return reply
