-- Makes KEYS[1] a finished record that lives for ARGV[2] ms and keeps the result ARGV[3],
-- if it is held by the owner ARGV[1]. With ARGV[4], for the last so many ms it lives without the result. Answers 1, or 0 if
-- it isn't held.
local record = redis.call('GET', KEYS[1]) or ''
local tells, attempt, length, size, owner = string.match(record, '^[RW](0?)%d+();%d+();0?(%d+);()') -- where each ends, or begins
if not owner or string.sub(record, owner, owner + 15) ~= ARGV[1] then
  return 0
end
if ARGV[3] == '' then
  -- Without a result, the record becomes smaller. After PEXPIRE, a script may write also
  -- when the memory is full; a result that does not fit must be refused.
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
local last = #record
if tells == '0' then -- behind what the record tells, there are steps
  last = owner + 15 + size + select(2, head(string.sub(record, owner + 16 + size)))
end
redis.call('SET', KEYS[1], 'D' .. string.sub(record, 2, attempt) .. (ARGV[4] and '+' .. ARGV[4] or ARGV[2]) .. string.sub(record, length, owner - 1) .. string.sub(record, owner + 16, last) .. ARGV[3], 'PX', ARGV[2])
if string.sub(record, 1, 1) == 'W' then -- watched
  redis.pcall('PUBLISH', 'idem:wake', KEYS[1])
end
return 1
