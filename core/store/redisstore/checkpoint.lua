-- Makes ARGV[2] the steps in KEYS[1], if it is held by the owner ARGV[1]. Answers 1, or 0 if it isn't. Steps whose first 8 bytes are not
-- greater than those of the steps that are there come late: nothing is changed.
local record = redis.call('GET', KEYS[1]) or ''
local state, tells, rest, length, owner = string.match(record, '^([RW])(0?)()%d+;%d+;0?(%d+);()')
if not owner or string.sub(record, owner, owner + 15) ~= ARGV[1] then
  return 0
end
local last = owner + 15 + length
if tells == '0' then
  last = select(2, head(record, last + 1))
  local i, byte = 1, string.byte -- strings are compared by the server's locale, and numbers have 53 bits
  while i < 8 and byte(record, last + i) == byte(ARGV[2], i) do
    i = i + 1
  end
  if (byte(record, last + i) or -1) >= (byte(ARGV[2], i) or -1) then
    return 1
  end
  redis.call('SET', KEYS[1], string.sub(record, 1, last) .. ARGV[2], 'KEEPTTL')
else -- it tells nothing yet
  redis.call('SET', KEYS[1], state .. '0' .. string.sub(record, rest, last) .. '@' .. string.rep('\0', 28) .. ARGV[2], 'KEEPTTL')
end
return 1
