-- Counts one for KEYS[1], if its bucket holds one.
--
-- ARGV: in how many µs one comes back, in how many a whole bucket does, and the caller's mark.
--
-- The key holds when the bucket will be full again, in µs since 1970, and the mark of who was counted
-- last. Then it expires. (This is GCRA, and that moment its theoretical arrival time.)
--
-- Answers 0 if one was counted, else in how many µs one comes back.
local full = 0
local known = redis.call('GET', KEYS[1])
if known then
  local at, mark = string.match(known, '^(%d+);()')
  if not at then
    return redis.error_reply('ERR what stands under the key is no limit of idem')
  end
  if string.sub(known, mark) == ARGV[3] then
    return 0 -- the client has sent it twice
  end
  full = tonumber(at)
end
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local step, whole = tonumber(ARGV[1]), tonumber(ARGV[2])
-- No bucket is emptier than empty, unless the clock was set back.
full = math.min(math.max(full, now), now + whole) + step
local wait = full - now - whole
if wait > 0 then
  redis.call('GETEX', KEYS[1]) -- changes nothing, but a replica refuses it: it can't know
  return wait
end
redis.call('SET', KEYS[1], string.format('%.0f;', full) .. ARGV[3], 'PX', string.format('%.0f', math.ceil((full - now) / 1000)))
return 0
