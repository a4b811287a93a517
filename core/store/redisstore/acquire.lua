-- Claims KEYS[1], or answers with the record that stands in the way.
--
-- ARGV: the record of a first run, how long it lives in ms (lease and retention), and which
-- attempt may be taken over: '' none, '0' any.
--
-- Answers with the attempt if the claim is the caller's (negative if the record was free), else
-- with the record and how long that still lives, in ms.
local record = redis.call('GET', KEYS[1])
if not record then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
  return 1
end
local left = redis.call('PTTL', KEYS[1])
local state, attempt, retention, zero, length, at = string.match(record, '^([RWA])(%d+);(%d+);(0?)(%d+);()')
local free = state == 'A' and zero == '0'
if ARGV[3] == '' and not free or string.byte(record) == 68 then -- D: finished
  return {record, left}
end
if not state or state ~= 'A' and (left < 0 or left > tonumber(retention)) then
  return {record, left} -- the lease stands
end
if state ~= 'A' then
  at = at + 16 -- the owner
end
if #record ~= at - 1 + length or #attempt > 15 then
  return {record, left} -- none of ours
end
local length, mine = string.match(ARGV[1], '^R1;%d+;()%d+;()') -- where each begins
mine = mine + 16
if not free and (string.sub(record, at) ~= string.sub(ARGV[1], mine) or ARGV[3] ~= '0' and ARGV[3] ~= attempt) then
  return {record, left}
end

-- A takeover needs no more room than there is. After PEXPIRE, a script may write also
-- when the memory is full.
attempt = string.format('%.0f', attempt + 1)
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('SET', KEYS[1], 'R' .. attempt .. string.sub(ARGV[1], 3, length - 1) .. (free and '0' or '') .. string.sub(ARGV[1], length), 'PX', ARGV[2])
if state == 'W' then
  redis.pcall('PUBLISH', 'idem:wake', KEYS[1])
end
return free and -tonumber(attempt) or tonumber(attempt)
