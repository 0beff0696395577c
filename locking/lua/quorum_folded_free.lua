-- quorum_folded_free.lua: the ordinary case of quorum_release.lua, put before it: the row of a lease that was never renewed nor asked for again ends. Nothing
-- else of it can be on its way than the claim: its token is not new any more where the lock is folded, see quorum_folded_claim.lua, and else the row itself
-- refuses it from now on, until another is granted.
--
-- KEYS and ARGV are those of quorum_release.lua.

if ARGV[7] then
  local was = redis.pcall('GET', KEYS[2])
  if type(was) == 'string' then
    if was == ARGV[7] then return {'released', 0, 0} end -- the same again
    if string.sub(was, 1, #ARGV[7] + 1) == ARGV[7] .. '\n' then
      redis.call('SET', KEYS[2], ARGV[7], 'KEEPTTL')
      return {'released', 0, 0}
    end
  else
    local field = 'r' .. ARGV[4]
    local row = redis.pcall('HGET', KEYS[2], field)
    if row == '-' .. ARGV[1] then return {'released', 0, 0} end -- the same again
    if type(row) == 'string' and string.sub(row, 1, #ARGV[1] + 1) == ARGV[1] .. '\n' then
      redis.call('HSET', KEYS[2], field, '-' .. ARGV[1])
      return {'released', 0, 0}
    end
  end
end
