-- Makes KEYS[1] a finished record that lives for ARGV[2] ms and keeps the result ARGV[3],
-- if it is held by the owner ARGV[1]. Answers 1, or 0 if it isn't.
local record = redis.call('GET', KEYS[1]) or ''
local attempt, length, owner = string.match(record, '^[RW]%d+();%d+();%d+;()') -- where each ends, or begins
if not owner or string.sub(record, owner, owner + 15) ~= ARGV[1] then
  return 0
end
if ARGV[3] == '' then
  -- Without a result, the record becomes smaller. After PEXPIRE, a script may write also
  -- when the memory is full; a result that does not fit must be refused.
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
redis.call('SET', KEYS[1], 'D' .. string.sub(record, 2, attempt) .. ARGV[2] .. string.sub(record, length, owner - 1) .. string.sub(record, owner + 16) .. ARGV[3], 'PX', ARGV[2])
if string.byte(record) == 87 then -- W: watched
  redis.pcall('PUBLISH', 'idem:wake', KEYS[1])
end
return 1
