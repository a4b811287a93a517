-- Answers with the record under KEYS[1] and how long it still lives, in ms; or with 0 if there is none.
local record = redis.call('GET', KEYS[1])
return record and {record, redis.call('PTTL', KEYS[1])} or 0
