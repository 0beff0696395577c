-- folded_free.lua: ends leases that folded_grant.lua has granted, if their locks are folded still: see there. It leaves no tombstone: nothing is under way
-- in the name of such a lease but perhaps a renewal, which the lock's newest token tells that it is too late.
--
-- KEYS  the lock of each request
-- ARGV  for each request: the lock as it was granted, as it is free, and for how many milliseconds it is remembered
-- Reply: for each request 1, or 0: ask release.lua

local reply = {}
for i = 1, #KEYS do
  local at, freed = 3 * i - 2, 0
  if redis.pcall('GET', KEYS[i]) == ARGV[at] then
    redis.call('SET', KEYS[i], ARGV[at + 1], 'PX', ARGV[at + 2])
    freed = 1
  end
  reply[i] = freed
end
return reply
