-- quorum_unfold.lua: makes a hash of a lock that is folded, see quorum_folded_claim.lua, for the scripts that it is put before.
--
-- KEYS  2 lock

local function unfold()
  local was = redis.call('GET', KEYS[2])
  local token, lease, id, rest = string.match(was, '^(%d+) (%d+) ([^\n]*)(.*)$')
  local life = token and redis.call('PTTL', KEYS[2]) or redis.call('HLEN', KEYS[2]) -- which tells that it is no lock
  local owner, expiry = string.match(rest, '^\n(.*)\n(%d+)$')
  redis.call('DEL', KEYS[2])
  redis.call('HSET', KEYS[2], 'floor', token, 'limit', '1', 'longest', lease,
    'r0', owner and table.concat({id, token, expiry, lease, '0', '', owner}, '\n') or '-' .. id)
  redis.call('PEXPIRE', KEYS[2], life)
end

-- What a command says of the lock's hash.
local function hash(command, ...)
  local got = redis.pcall(command, KEYS[2], ...)
  if type(got) ~= 'table' or not got.err then return got end
  unfold()
  return redis.call(command, KEYS[2], ...)
end
