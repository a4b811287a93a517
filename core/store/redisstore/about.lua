-- Where the secret's name begins (with its length), and where it ends, in what a record tells from a byte of it on. It is behind policy,
-- creator and remark, each after its length; steps are behind it.
local function head(text, at)
  local byte = string.byte
  at = at + 25
  for _ = 1, 3 do
    at = at + 1 + byte(text, at)
  end
  return at, at + byte(text, at)
end
