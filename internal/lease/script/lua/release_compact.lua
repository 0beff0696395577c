-- release_compact.lua: ends leases that acquire_compact.lua has granted, if their locks are compact still: see there. It leaves no tombstone: nothing is under way
-- in the name of such a lease, since its request was answered, and one that was ever to be renewed is for release.lua.
--
-- KEYS  the lock of each request
-- ARGV   1 held  for each request: the lock as it was granted
--        2 free  and as it is free
-- Reply: for each request 1, or 0: ask release.lua

local reply = {}
for i = 1, #KEYS do
  reply[i] = 0
  if redis.pcall('GET', KEYS[i]) == ARGV[2 * i - 1] then
    redis.call('SET', KEYS[i], ARGV[2 * i], 'KEEPTTL') -- it was granted with time for that
    reply[i] = 1
  end
end
return reply
