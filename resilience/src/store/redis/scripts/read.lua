-- Reads one key.
--
-- KEYS[1]  the key
-- Returns  its text, or nothing

return redis.call('GET', KEYS[1])
