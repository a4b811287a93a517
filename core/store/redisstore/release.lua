-- Ends the run under KEYS[1], if it is held by the owner ARGV[1]. ARGV[2] says what becomes of
-- it: without one, a first attempt is forgotten, a later one is what it was before the claim, free
-- or abandoned; 'free': the same, but a later one is free; 'abandon': it is abandoned; 'keep': it is free,
-- and keeps its operation. Answers 1, or 0 if it isn't held.
local record = redis.call('GET', KEYS[1])
if not record then
  return 0
end
local state, tells, attempt, retention, zero, length, at = string.match(record, '^([RW])(0?)(%d+);(%d+);(0?)(%d+);()')
if not state or string.sub(record, at, at + 15) ~= ARGV[1] then
  return 0
end
if attempt == '1' and ARGV[2] ~= 'abandon' and ARGV[2] ~= 'keep' or retention == '0' then
  redis.call('DEL', KEYS[1])
else
  redis.call('PEXPIRE', KEYS[1], retention) -- see complete.lua
  local fingerprint, about = string.sub(record, at + 16, at + 15 + length), string.sub(record, at + 16 + length)
  if ARGV[2] == 'keep' then
    if about ~= '' and string.sub(about, 1, 1) ~= 'A' then
      about = ((zero == '' and attempt ~= '1') and 'A' or 'B') .. string.sub(about, 2)
    end
    zero = '0'
  elseif ARGV[2] then
    zero = ARGV[2] == 'free' and '0' or ''
    about = string.gsub(about, '^[AB]', '@')
  end
  if zero == '0' and string.sub(about, 1, 1) == '@' then -- the operation has ended
    about = '@' .. string.rep('\0', 16) .. string.sub(about, 18, select(2, head(about, 1)))
  end
  redis.call('SET', KEYS[1], 'A' .. tells .. attempt .. ';' .. retention .. ';' .. zero .. length .. ';' .. fingerprint .. about, 'PX', retention)
end
if state == 'W' then
  redis.pcall('PUBLISH', 'idem:wake', KEYS[1])
end
return 1
