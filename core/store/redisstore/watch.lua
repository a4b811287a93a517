-- Marks the run under KEYS[1] as watched, so that whatever ends it is published. Answers 1,
-- or 0 if nothing runs.
local state = string.match(redis.call('GETRANGE', KEYS[1], 0, 40), '^([RW])%d+;%d+;%d+;')
if state == 'R' then
  redis.call('SETRANGE', KEYS[1], 0, 'W') -- the record lives as long as before
elseif not state then
  return 0
end
return 1
