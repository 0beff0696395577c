-- quorum_release_fast.lua: the ordinary case of quorum_release.lua, put before it: the row of a lease that was never renewed nor asked for again ends. Nothing
-- else of it can be on its way than the claim, which the row itself refuses from now on, until another is granted: then that one's token does.
--
-- KEYS and ARGV are those of quorum_release.lua.

if ARGV[7] == '1' then
  local field = 'r' .. ARGV[4]
  local row = redis.call('HGET', KEYS[2], field)
  if row == '-' .. ARGV[1] then return {'released', 0, 0} end -- the same again
  if row and string.sub(row, 1, #ARGV[1] + 1) == ARGV[1] .. '\n' then
    redis.call('HSET', KEYS[2], field, '-' .. ARGV[1])
    return {'released', 0, 0}
  end
end
