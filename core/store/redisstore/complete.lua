-- Makes KEYS[1] a finished record that lives for ARGV[2] ms and keeps the result ARGV[3],
-- if it is held by the owner ARGV[1]. ARGV[4] is what the record says of its retention: ARGV[2], or a + and for how many ms it lives in
-- the end without the result.
--
-- A caller who knows the record, as it was claimed, sends it as ARGV[5]. ARGV[3] is then the whole finished record, and ARGV[6] where the
-- result begins in it. So there is nothing to be cut, mostly: that takes a third of the script's time.
--
-- Answers 1, or 0 if it isn't held.
local record = redis.call('GET', KEYS[1]) or ''
if record == ARGV[5] then
  redis.call('SET', KEYS[1], ARGV[3], 'PX', ARGV[2])
  return 1
end
local attempt, tells, length, size, owner = string.match(record, '^[RW]((0?)%d+;)%d+(;0?(%d+);)()')
if not owner or string.sub(record, owner, owner + 15) ~= ARGV[1] then
  return 0
end
local result, last = ARGV[3], -1
if ARGV[6] then
  result = string.sub(result, tonumber(ARGV[6]))
end
if result == '' then
  -- Without a result, the record becomes smaller. After PEXPIRE, a script may write also
  -- when the memory is full; a result that does not fit must be refused.
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
if tells == '0' then -- behind what the record tells, there are steps
  last = select(2, head(record, owner + 16 + size))
end
redis.call('SET', KEYS[1], 'D' .. attempt .. ARGV[4] .. length .. string.sub(record, owner + 16, last) .. result, 'PX', ARGV[2])
if string.byte(record) == 87 then -- W: it is watched
  redis.pcall('PUBLISH', 'idem:wake', KEYS[1])
end
return 1
