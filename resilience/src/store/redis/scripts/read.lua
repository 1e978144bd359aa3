-- Reads keys.
--
-- KEYS[i]  a key
-- ARGV[1]  a token
-- Returns  the token, then for each key its text, nothing, or the error of reading it

local reply = { ARGV[1] }
for i = 1, #KEYS do
  reply[i + 1] = redis.pcall('GET', KEYS[i])
end
return reply
