-- Ends the run under KEYS[1], if it is held by the owner ARGV[1]: a first attempt is
-- forgotten, a later one remembered as abandoned, and so is a first one if there is an
-- ARGV[2]. Answers 1, or 0 if it isn't held.
local record = redis.call('GET', KEYS[1])
if not record then
  return 0
end
local state, attempt, retention, length, at = string.match(record, '^([RW])(%d+);(%d+);(%d+);()')
if not state or string.sub(record, at, at + 15) ~= ARGV[1] then
  return 0
end
if attempt == '1' and not ARGV[2] or retention == '0' then
  redis.call('DEL', KEYS[1])
else
  redis.call('PEXPIRE', KEYS[1], retention) -- see complete.lua
  redis.call('SET', KEYS[1], 'A' .. attempt .. ';0;' .. length .. ';' .. string.sub(record, at + 16), 'PX', retention)
end
if state == 'W' then
  redis.pcall('PUBLISH', 'idem:wake', KEYS[1])
end
return 1
