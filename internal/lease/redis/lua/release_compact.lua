-- release_compact.lua: ends leases that acquire_compact.lua has granted, if their locks are still compact: see there. It leaves no tombstone: no request of
-- such a lease is under way, because its only request was answered, and a lease with a renewal is ended by release.lua.
--
-- KEYS  the lock of each request
-- ARGV   1 held  for each request: the lock as it was granted
--        2 free  and as it is when it is free
-- Reply: for each request 1, or 0: ask release.lua

local reply = {}
for i = 1, #KEYS do
  reply[i] = 0
  if redis.pcall('GET', KEYS[i]) == ARGV[2 * i - 1] then
    redis.call('SET', KEYS[i], ARGV[2 * i], 'KEEPTTL') -- its grant has set a time to live that includes this
    reply[i] = 1
  end
end
return reply
