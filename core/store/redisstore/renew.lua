-- Makes the lease of KEYS[1] end ARGV[2] ms from now, if it is held by the owner ARGV[1].
-- Answers 1, or 0 if it isn't.
local record = redis.call('GET', KEYS[1])
if not record then
  return 0
end
local retention, at = string.match(record, '^[RW]%d+;(%d+);%d+;()')
if not retention or string.sub(record, at, at + 15) ~= ARGV[1] then
  return 0
end
redis.call('PEXPIRE', KEYS[1], string.format('%.0f', ARGV[2] + retention))
return 1
