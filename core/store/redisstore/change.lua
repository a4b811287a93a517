-- Changes the record under KEYS[1] for an operator, if it is the one that was seen.
--
-- ARGV[1]: what was seen: the id, 16 bytes; R, A, F or D for running, abandoned, free or done; the attempt. ARGV[2]: what becomes
-- of it: F, D, or 0 for nothing; the retention in ms, and after a ';' a remark. ARGV[3]: the result.
--
-- Answers 2, or 1 if the record is another one by now, or 0 if there is none.
local record = redis.call('GET', KEYS[1])
if not record then
  return 0
end
local left = redis.call('PTTL', KEYS[1])
local state, tells, attempt, retention, zero, length, at = string.match(record, '^([RWAD])(0?)(%d+);%+?(%d+);(0?)(%d+);()')
if not state then
  return 0
end
local is = state
if state == 'R' or state == 'W' then
  at = at + 16 -- the owner
  is = (left < 0 or left > tonumber(retention)) and 'R' or 'A'
elseif state == 'A' and zero == '0' then
  is = 'F'
end
local about = tells == '0' and string.sub(record, at + length) or '@' .. string.rep('\0', 28)
if string.sub(about, 2, 17) .. is .. attempt ~= ARGV[1] then
  return 1
end
local to, span, remark = string.match(ARGV[2], '^(.)(%d+);(.*)$')
if to == '0' or to == 'F' and retention == '0' and state ~= 'A' then
  redis.call('DEL', KEYS[1])
else
  -- Policy, creator, remark and the secret's name, each after its length; and steps.
  local creator = 27 + string.byte(about, 26)
  local note = creator + 1 + string.byte(about, creator)
  local secret, last = head(about, 1)
  if remark == '' then
    remark = string.sub(about, note + 1, secret - 1)
  end
  if to == 'F' then
    last = #about
  end
  about = (to == 'F' and 'A' or '@') .. string.sub(about, 2, note - 1) .. string.char(#remark) .. remark .. string.sub(about, secret, last)
  local fingerprint = string.sub(record, at, at + length - 1)
  if to == 'F' then
    if retention == '0' then -- a record of an earlier version does not tell it
      retention = string.format('%.0f', left)
    end
    redis.call('PEXPIRE', KEYS[1], retention) -- see complete.lua
    redis.call('SET', KEYS[1], 'A0' .. attempt .. ';' .. retention .. ';0' .. length .. ';' .. fingerprint .. about, 'PX', retention)
  else
    redis.call('SET', KEYS[1], 'D0' .. attempt .. ';' .. span .. ';' .. length .. ';' .. fingerprint .. about .. ARGV[3], 'PX', span)
  end
end
if state == 'W' then
  redis.pcall('PUBLISH', 'idem:wake', KEYS[1])
end
return 2
