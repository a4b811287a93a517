-- Makes KEYS[1] a finished record that lives for ARGV[2] ms and keeps the result ARGV[3],
-- if it is held by the owner ARGV[1]. Answers 1, or 0 if it isn't.
local record = redis.call('GET', KEYS[1])
if not record then
  return 0
end
local state, attempt, at = string.match(record, '^([RW])(%d+);%d+;%d+;()')
if not state or string.sub(record, at, at + 15) ~= ARGV[1] then
  return 0
end
local fingerprint = string.sub(record, at + 16)
if ARGV[3] == '' then
  -- Without a result, the record becomes smaller. After PEXPIRE, a script may write also
  -- when the memory is full; a result that does not fit must be refused.
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
redis.call('SET', KEYS[1], 'D' .. attempt .. ';0;' .. #fingerprint .. ';' .. fingerprint .. ARGV[3], 'PX', ARGV[2])
if state == 'W' then
  redis.pcall('PUBLISH', 'idem:wake', KEYS[1])
end
return 1
