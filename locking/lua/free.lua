-- free.lua: the ordinary case of release.lua, put before it, as grant.lua is before acquire.lua: the only row of a lock without
-- ledger, orphans or queue ends as its holder says. What else there may be goes on to the whole text,
-- and so does a tick whose outcome is to be kept.
--
-- KEYS and ARGV are those of release.lua.

if (ARGV[10] or '0') == '0' and ARGV[8] ~= '1' and not ARGV[14] then
  local f = redis.call('HMGET', KEYS[1], 'floor', 'longest', 'low', 'permanent', 'delayed', 'i' .. ARGV[1], 'r0', 'a' .. ARGV[1], 'used')
  local idle = ARGV[3] + 0
  if f[6] == '0' and f[9] == '1' and f[7] and string.sub(f[7], 1, #ARGV[1] + 1) == ARGV[1] .. '\n' and not f[8] and (f[5] or '') == ''
    and (idle > 0) ~= (f[4] == '1') and redis.call('EXISTS', KEYS[4], KEYS[2], KEYS[3], KEYS[5] or KEYS[4]) == 0 then
    local clock = redis.call('TIME')
    redis.call('SET', KEYS[4], 'released', 'PX', string.format('%.0f', ARGV[9] / 1000))
    redis.call('HDEL', KEYS[1], 'r0', 'e0', 's0', 'i' .. ARGV[1])
    local longest = (f[2] or 0) + 0
    if idle > 0 then
      redis.call('PEXPIRE', KEYS[1], string.format('%.0f', math.max(idle, 2 * longest) / 1000))
    end
    return {'released', clock[1] * 1000000 + clock[2], (f[1] or 0) + 0, longest, (f[3] or 0) + 0, '', 0}
  end
end
