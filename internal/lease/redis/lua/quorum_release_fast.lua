-- quorum_release_fast.lua: the usual case of quorum_release.lua, put before it: the row of a lease that was never renewed nor asked for again ends. Only its
-- claim can still be on its way. The row itself refuses that claim from now on, and once the row is granted again, the token of that grant does.
--
-- KEYS and ARGV are the same as in quorum_release.lua.

if ARGV[7] == '1' then
  local field = 'r' .. ARGV[4]
  local row = redis.call('HGET', KEYS[2], field)
  if row == '-' .. ARGV[1] then return {'released', 0, 0} end -- the same request again
  if row and string.sub(row, 1, #ARGV[1] + 1) == ARGV[1] .. '\n' then
    redis.call('HSET', KEYS[2], field, '-' .. ARGV[1])
    return {'released', 0, 0}
  end
end
