-- quorum_release_fast.lua: the common case of quorum_release.lua, placed before it: a lease ends that was neither renewed nor requested twice. Only
-- its claim can still arrive. The value "-id" of the row refuses that claim. Once the row is granted again, the token of the new grant refuses it.
--
-- KEYS and ARGV are the same as in quorum_release.lua.

if ARGV[7] == '1' then
  local field = 'r' .. ARGV[4]
  local row = redis.call('HGET', KEYS[2], field)
  if row == '-' .. ARGV[1] then return {'released', 0, 0} end -- a repeated request
  if row and string.sub(row, 1, #ARGV[1] + 1) == ARGV[1] .. '\n' then
    redis.call('HSET', KEYS[2], field, '-' .. ARGV[1])
    return {'released', 0, 0}
  end
end
