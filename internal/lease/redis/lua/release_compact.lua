-- release_compact.lua: ends leases that acquire_compact.lua has granted, if their locks are still compact. It leaves no tombstone, because no request
-- of such a lease can still arrive: its only request was answered, and release.lua ends a lease that was renewed.
--
-- KEYS  the lock of each request
-- ARGV   1 held  the value of the lock since the grant; then both arguments for each other request
--        2 free  the value of the lock after the release
-- Reply: for each request 1, or 0: use release.lua

local reply = {}
for i = 1, #KEYS do
  reply[i] = 0
  if redis.pcall('GET', KEYS[i]) == ARGV[2 * i - 1] then
    redis.call('SET', KEYS[i], ARGV[2 * i], 'KEEPTTL') -- the grant has set a time to live that is long enough for this
    reply[i] = 1
  end
end
return reply
