-- Takes from each of several quotas, or from none of them.
--
-- KEYS[i]  what is counted of a client, told apart by its length:
--          1 + 6n bytes: a sliding log: a byte 1, then the times of n admitted units in milliseconds, oldest first
--          24 bytes: a sliding window's index, previous count, current count, and the time of the last admitted request
--          16 bytes: a fixed window's index, 0 and current count
--          12 bytes: when a bucket will be full, in milliseconds and parts of one
-- ARGV     for each key of a log: "3", the window in milliseconds, limit less cost, cost; for each key of a window: "1" if
--          it slides or "0" if it is fixed, and the same three; for each key of a bucket: "2", the window in milliseconds,
--          the limit (which many parts make a millisecond), and two spans in milliseconds and parts: the most that a
--          bucket may lack and still have the request's tokens, and how long it takes to gain them
--          and at last a token
-- Returns  the token, then for each key: 1 if it had room or 0, and four numbers as they were before: of a log the units, the milliseconds
--          until the oldest leaves, and those until enough have left (for the request if it does not fit, else for one
--          more like it), 0 if none has to; of a window the previous count, the current count, the milliseconds into the
--          window and those since the last admitted request; of a bucket the milliseconds and parts that it lacked. The
--          rest are 0. The cost is counted now if every key had room.
--
-- Mirrors `Rule::count` and `Stored::write` of store/log.rs, and the reading of one kind of sliding window as the other of
-- store/account.rs. Mirrors `Rule::count` and `Rule::room` of store/window.rs. Lua's numbers are exact up to 2^53, hence
-- the products for limit * window up to 9e15 (285,000 a year, 100 million a day); beyond, a decision on the very edge may
-- be rounded. Mirrors `Rule::lacking`, `Rule::fits` and `Rule::charge` of store/bucket.rs, which is exact whatever the
-- quota.
--
-- Redis runs this on its only thread: two thirds of a call are Lua. Packed counts spare a fifth of it against text, since
-- no strings are cut, and the writes are prepared in the first loop for the same reason. A log is searched in place.

local call, pack, unpack = redis.call, struct.pack, struct.unpack
-- The server's clock: the nodes' differ.
local time = call('TIME')
local now = time[1] * 1000 + (time[2] - time[2] % 1000) / 1000
local admitted = true
local reply, writes = { ARGV[#ARGV] }, {}
-- What to store of a record that is ahead of the clock, even if the request is refused.
local corrections
local arg = 1

for i = 1, #KEYS do
  local kind, window = ARGV[arg], ARGV[arg + 1] + 0
  local value = call('GET', KEYS[i])
  local fits, first, second, third, fourth, after, lifetime

  if kind == '2' then
    local limit, slack, slack_parts = ARGV[arg + 2] + 0, ARGV[arg + 3] + 0, ARGV[arg + 4] + 0
    local lacking, parts = 0, 0
    -- Anything else under this key counts as nothing, and is overwritten.
    if value and #value == 12 then
      local full, full_parts = unpack('>I8I4', value)
      -- More than two windows ahead: the clock has stepped back, so start afresh.
      if full >= now and full - now <= 2 * window then
        lacking, parts = full - now, math.min(full_parts, limit - 1)
      end
    end
    fits = lacking < slack or lacking == slack and parts <= slack_parts
    first, second, third, fourth = lacking, parts, 0, 0

    lacking, parts = lacking + ARGV[arg + 5], parts + ARGV[arg + 6]
    if parts >= limit then
      lacking, parts = lacking + 1, parts - limit
    end
    after = pack('>I8I4', now + lacking, parts)
    lifetime = parts > 0 and lacking + 1 or lacking
    arg = arg + 7
  else
    local slack, cost = ARGV[arg + 2] + 0, ARGV[arg + 3] + 0
    local sliding = kind ~= '0'
    arg = arg + 4

    local log, size = '\1', 0
    if sliding and value and #value % 6 == 1 and string.byte(value) == 1 then
      log, size = value, (#value - 1) / 6
    end

    local elapsed = now % window
    local index = (now - elapsed) / window
    local previous, current, last = 0, 0, nil
    if kind ~= '3' or value and #value == 24 then
      local at, before, during
      if not sliding and value and #value == 16 then
        at, before, during = unpack('>I8I4I4', value)
      elseif sliding and value and #value == 24 then
        at, before, during, last = unpack('>I8I4I4I8', value)
      elseif size > 0 then
        -- The log of a lower limit: read as the count of the current window.
        at, before, during, last = index, 0, 0, unpack('>I6', log, 6 * size - 4)
        while during < size and unpack('>I6', log, 6 * (size - during) - 4) > now - window do
          during = during + 1
        end
      end
      -- A client of whom nothing was admitted for a whole window starts afresh.
      if at and not (last and now - last >= window) then
        if at == index + 1 then
          -- The clock has stepped back over a boundary: stay in the window that has begun already.
          index, elapsed = at, 0
        end
        if at == index then
          previous, current = sliding and before or 0, during
        elseif at == index - 1 then
          previous = sliding and during or 0
        end
      end
    end

    if kind == '3' then
      if last then
        -- The counters of a higher limit: read as units that were all admitted at the last time.
        size = math.min(current + math.ceil(previous * (window - elapsed) / window), slack + cost)
        log = log .. string.rep(pack('>I6', math.min(last, now)), size)
      end
      local gone, oldest = 0, nil
      if size > 0 then
        local past = size
        while past > 0 and unpack('>I6', log, 6 * past - 4) > now do
          past = past - 1
        end
        if past < size then
          -- The clock has stepped back: times in the future count as now, and are stored so. Otherwise they would count
          -- until the clock has caught up.
          log = string.sub(log, 1, 1 + 6 * past) .. string.rep(pack('>I6', now), size - past)
          corrections = corrections or {}
          corrections[i] = log
        end
        oldest = unpack('>I6', log, 2)
        if oldest <= now - window then
          -- How many have left.
          local low, high = 1, size
          while low < high do
            local middle = (low + high - (low + high) % 2) / 2
            if unpack('>I6', log, 2 + 6 * middle) <= now - window then
              low = middle + 1
            else
              high = middle
            end
          end
          gone = low
          oldest = gone < size and unpack('>I6', log, 2 + 6 * gone)
        end
      end

      local used = size - gone
      fits = used <= slack
      first, second, third, fourth = used, oldest and oldest + window - now or 0, 0, 0
      local surplus = fits and used + cost - slack or used - slack
      if surplus == 1 then
        third = second
      elseif surplus > 1 and surplus <= used then
        third = unpack('>I6', log, 6 * (gone + surplus) - 4) + window - now
      end
      if fits then
        local added = pack('>I6', now)
        if cost > 1 then
          added = string.rep(added, cost)
        end
        if gone > 0 then
          after = '\1' .. string.sub(log, 2 + 6 * gone) .. added
        else
          after = log .. added
        end
      end
      lifetime = window
    else
      local room = slack - current
      fits = room >= 0 and previous * (window - elapsed) <= room * window
      first, second, third, fourth = previous, current, elapsed, 0
      if sliding then
        fourth = last and math.max(now - last, 0) or window
        after = pack('>I8I4I4I8', index, previous, current + cost, now)
        if last and last > now then
          corrections = corrections or {}
          corrections[i] = pack('>I8I4I4I8', index, previous, current, now)
        end
        lifetime = window
      else
        after = pack('>I8I4I4', index, 0, current + cost)
        lifetime = window - elapsed
      end
    end
  end

  admitted = admitted and fits
  local last = 5 * i + 1
  reply[last - 4], reply[last - 3], reply[last - 2], reply[last - 1], reply[last] =
    fits and 1 or 0, first, second, third, fourth
  writes[2 * i - 1], writes[2 * i] = after, lifetime
end

for i = 1, #KEYS do
  local value, lifetime = writes[2 * i - 1], writes[2 * i]
  if admitted then
    call('SET', KEYS[i], value, 'PX', lifetime)
  elseif corrections and corrections[i] then
    call('SET', KEYS[i], corrections[i], 'PX', lifetime)
  elseif call('PTTL', KEYS[i]) == -1 then
    -- The expiry was removed: without a new one, a client over its limit would stay refused.
    call('PEXPIRE', KEYS[i], lifetime)
  end
end

return reply
