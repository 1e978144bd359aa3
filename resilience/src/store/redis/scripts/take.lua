-- Takes from each of several quotas, or from none of them.
--
-- KEYS[i]  a client's count: window index, previous count and current count, packed in 16 bytes; or when its bucket will
--          be full, milliseconds and parts of one, packed in 12
-- ARGV     for each key of a window: "1" if it slides or "0" if it is fixed, its length in milliseconds, limit less cost,
--          cost; for each key of a bucket: "2", the window in milliseconds, the limit (which many parts make a
--          millisecond), and two spans in milliseconds and parts: what a bucket may lack and still have the request's
--          tokens, and how long it takes to gain them
-- Returns  for each key: 1 if it had room or 0, and three numbers as they were before: previous count, current count and
--          milliseconds into the window; or what the bucket lacked, in milliseconds and parts, and 0. The cost is
--          counted now if every key had room.
--
-- Mirrors `Rule::count` and `Rule::room` of store/window.rs. Lua's numbers are exact up to 2^53, hence the products for
-- limit * window up to 9e15 (285,000 a year, 100 million a day); beyond, a decision on the very edge may be rounded.
-- Mirrors `Rule::lacking`, `Rule::fits` and `Rule::charge` of store/bucket.rs, which is exact whatever the quota.
--
-- Redis runs this on its only thread: two thirds of a call are Lua. Packed counts spare a fifth of it against text, since
-- no strings are cut, and the writes are prepared in the first loop for the same reason.

local call = redis.call
-- The server's clock: the nodes' differ.
local time = call('TIME')
local now = time[1] * 1000 + (time[2] - time[2] % 1000) / 1000
local admitted = true
local reply, writes = {}, {}
local arg = 1

for i = 1, #KEYS do
  local kind, window = ARGV[arg], ARGV[arg + 1] + 0
  local value = call('GET', KEYS[i])
  local fits, first, second, third, after, lifetime

  if kind == '2' then
    local limit, slack, slack_parts = ARGV[arg + 2] + 0, ARGV[arg + 3] + 0, ARGV[arg + 4] + 0
    local lacking, parts = 0, 0
    -- Anything else under this key counts as nothing, and is overwritten.
    if value and #value == 12 then
      local full, full_parts = struct.unpack('>I8I4', value)
      -- More than two windows ahead: the clock has stepped back, so start afresh.
      if full >= now and full - now <= 2 * window then
        lacking, parts = full - now, math.min(full_parts, limit - 1)
      end
    end
    fits = lacking < slack or lacking == slack and parts <= slack_parts
    first, second, third = lacking, parts, 0

    lacking, parts = lacking + ARGV[arg + 5], parts + ARGV[arg + 6]
    if parts >= limit then
      lacking, parts = lacking + 1, parts - limit
    end
    after = struct.pack('>I8I4', now + lacking, parts)
    lifetime = parts > 0 and lacking + 1 or lacking
    arg = arg + 7
  else
    local sliding = kind == '1'
    local elapsed = now % window
    local index = (now - elapsed) / window
    local previous, current = 0, 0
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

    local room = ARGV[arg + 2] - current
    fits = room >= 0 and previous * (window - elapsed) <= room * window
    first, second, third = previous, current, elapsed
    after = struct.pack('>I8I4I4', index, previous, current + ARGV[arg + 3])
    lifetime = sliding and 2 * window - elapsed or window - elapsed
    arg = arg + 4
  end

  admitted = admitted and fits
  local last = 4 * i
  reply[last - 3], reply[last - 2], reply[last - 1], reply[last] = fits and 1 or 0, first, second, third
  writes[2 * i - 1], writes[2 * i] = after, lifetime
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
