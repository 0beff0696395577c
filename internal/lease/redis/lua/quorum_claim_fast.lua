-- quorum_claim_fast.lua: the common case of quorum_claim.lua, placed before it: the only row of a lock without a register is free. This script has
-- no rules of its own: in all other cases the full script follows, which would decide this case in the same way.
--
-- KEYS and ARGV are the same as in quorum_claim.lua.

local done, got = pcall(function() -- a string that is not a number fails here before anything is written; the full script then reports it
if ARGV[4] == '0' and ARGV[5] == '1' and ARGV[10] == '' and (ARGV[12] == '' or ARGV[12] == 'but,0,') and ARGV[14] == '' and ARGV[16] ~= '1' then
  local clock = redis.call('TIME')
  local now = clock[1] * 1000000 + clock[2]
  local m = redis.call('HMGET', KEYS[1], 'state', 'base', 'top', 'longest')
  local f = redis.call('HMGET', KEYS[2], 'r0', 'floor', 'limit', 'longest', 'permanent', 'dead')
  local token, lease, idle = tonumber(ARGV[9]), tonumber(ARGV[6]), tonumber(ARGV[3])
  local floor, top = math.max(tonumber(m[2] or 0), tonumber(f[2] or 0)), tonumber(m[3] or 0)
  local most, lock_longest, delay = tonumber(m[4] or 0), tonumber(f[4] or 0), tonumber(ARGV[7])
  if m[1] == 'voting' and now <= tonumber(ARGV[2]) and (not f[1] or string.byte(f[1]) == 45 and f[1] ~= '-' .. ARGV[1])
    and (not f[3] or f[3] == '1') and not f[5] and idle > 0
    and token > floor and token - math.max(now, floor) <= 60000000 and floor >= 0 and floor <= now + 86400000000 -- as in check.lua
    and top >= 0 and top <= now + 86400000000 and most >= 0 and most <= 86400000000 and lock_longest >= 0 and lock_longest <= 86400000000
    and (not f[6] or tonumber(f[6]) < now) then
    local longest = math.max(lease + delay, lock_longest)
    redis.call('HSET', KEYS[2], 'floor', ARGV[9], 'limit', '1', 'longest', string.format('%.0f', longest), 'r0',
      table.concat({ARGV[1], ARGV[9], string.format('%.0f', now + lease), ARGV[6], ARGV[7], '', ARGV[11]}, '\n'))
    redis.call('PEXPIRE', KEYS[2], string.format('%.0f', math.max(idle, 2 * longest) / 1000))
    if token > top or lease + delay > most then
      redis.call('HSET', KEYS[1], 'top', string.format('%.0f', math.max(top, token + 1000000)),
        'longest', string.format('%.0f', math.max(most, lease + delay)))
    end
    return {'yes', now, token, 0, token}
  end
end
end)
if done and got then return got end
