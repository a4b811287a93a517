-- Claims KEYS[1], or answers with the record that stands in the way.
--
-- ARGV: the record of a first run, how long it lives in ms (lease and retention), and which
-- attempt may be taken over: '' none, '0' any.
--
-- Answers with the attempt if the claim is the caller's (negative if the record was free and nothing is
-- uncertain), and with the operation's id, the secret's name after its length, and the steps, if the record tells them; else with
-- the record and how long that still lives, in ms.

local record = redis.call('GET', KEYS[1])
if not record then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
  return 1
end
local left = redis.call('PTTL', KEYS[1])
local told, known, size, at = string.match(record, '^D(0?)%d+;%+(%d+);0?(%d+);()')
if known and left >= 0 and left <= tonumber(known) then -- it has outlived its result, which goes; a server that can't write keeps it
  local last = at - 1 + size
  if told == '0' then
    last = select(2, head(record, last + 1))
  end
  if last < #record then
    record = string.sub(record, 1, last)
    redis.pcall('SET', KEYS[1], record, 'KEEPTTL')
  end
end
local state, tells, attempt, retention, zero, length, at = string.match(record, '^([RWA])(0?)(%d+);(%d+);(0?)(%d+);()')
local free = state == 'A' and zero == '0'
if ARGV[3] == '' and not free or string.sub(record, 1, 1) == 'D' then -- finished
  return {record, left}
end
if not state or state ~= 'A' and (left < 0 or left > tonumber(retention)) then
  return {record, left} -- the lease stands
end
if state ~= 'A' then
  at = at + 16 -- the owner
end
local old = string.sub(record, at + length) -- what it tells
if #record < at - 1 + length or (tells == '') ~= (old == '') or #attempt > 15 then
  return {record, left} -- none of ours
end
local mine, span, size, rest = string.match(ARGV[1], '^R0?1();%d+;()(%d+);()') -- where each begins
local about = string.sub(ARGV[1], rest + 16 + size)
local same = string.sub(record, at, at + length - 1) == string.sub(ARGV[1], rest + 16, rest + 15 + size)
if not free and (not same or ARGV[3] ~= '0' and ARGV[3] ~= attempt) then
  return {record, left}
end

local uncertain = free and string.sub(old, 1, 1) == 'A'
if old ~= '' then
  local id = string.sub(old, 2, 17)
  local goesOn = (same or not free) and id ~= string.rep('\0', 16)
  local name, last = head(old, 1)
  if about == '' then
    about = string.sub(old, 1, 1) .. string.rep('\0', 16) .. string.sub(old, 18, last)
  end
  local mark = uncertain and 'A' or goesOn and free and string.sub(old, 1, 1) or '@'
  about = mark .. (goesOn and string.sub(old, 2, 25) or string.sub(about, 2, 25)) .. string.sub(about, 26)
  if goesOn then
    if last > name then -- the first claim that has named a secret has
      about = string.sub(about, 1, head(about, 1) - 1) .. string.sub(old, name)
    else
      about = about .. string.sub(old, last + 1)
    end
  end
end

-- A takeover needs no more room than there is. After PEXPIRE, a script may write also
-- when the memory is full.
attempt = string.format('%.0f', attempt + 1)
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('SET', KEYS[1], (about == '' and 'R' or 'R0') .. attempt .. string.sub(ARGV[1], mine, span - 1) .. (free and '0' or '') ..
  string.sub(ARGV[1], span, rest + 15 + size) .. about, 'PX', ARGV[2])
if state == 'W' then
  redis.pcall('PUBLISH', 'idem:wake', KEYS[1])
end
attempt = (free and not uncertain) and -tonumber(attempt) or tonumber(attempt)
return about == '' and attempt or {attempt, string.sub(about, 2, 17) .. string.sub(about, (head(about, 1)))}
