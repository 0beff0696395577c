-- release_fast.lua: the common case of release.lua, placed before it, as acquire_fast.lua is placed before acquire.lua. The only row of a lock
-- without ledger and orphans ends, and its slot goes to the first waiter if there is one. In all other cases the full script follows, also if the
-- outcome of a tick must be stored.
--
-- KEYS and ARGV are the same as in release.lua.

local done, got = pcall(function() -- a string that is not a number fails here before anything is written; the full script then reports it
if (ARGV[10] or '0') == '0' and ARGV[8] ~= '1' and not ARGV[14] then
  local f = redis.pcall('HMGET', KEYS[1], 'floor', 'longest', 'low', 'permanent', 'delayed', 'i' .. ARGV[1], 'r0', 'a' .. ARGV[1], 'used', 'closed', 'delay',
    'limit', 't0', 'e0', 'came')
  local idle, floor, longest, low, closed, delay = ARGV[3] + 0, (f[1] or 0) + 0, (f[2] or 0) + 0, (f[3] or 0) + 0, (f[10] or 0) + 0, (f[11] or 0) + 0
  if f[6] == '0' and f[9] == '1' and f[7] and string.sub(f[7], 1, #ARGV[1] + 1) == ARGV[1] .. '\n' and not f[8] and (f[5] or '') == ''
    and (idle > 0) ~= (f[4] == '1') then
    local others = redis.call('EXISTS', KEYS[4], KEYS[2], KEYS[3], KEYS[5] or KEYS[4]) -- if one of these keys exists, it may be the queue
    local clock = redis.call('TIME')
    local now = clock[1] * 1000000 + clock[2]
    local heir, owner, lease, any, channel -- of the first waiter; the second waiter must ask for a single slot, too
    local line = others == 1 and KEYS[5] and redis.call('ZRANGE', KEYS[5], 0, 1) or {}
    local sound = floor >= 0 and floor <= now + 86400000000 and longest >= 0 and longest <= 86400000000 and low >= 0 and low <= now -- as in state.lua
    local ordinary, compact = others == 0 and sound, false
    if line[1] and sound and not f[11] and closed <= now and redis.call('ZCOUNT', KEYS[6], '-inf', string.format('%.0f', now)) == 0 then
      local waits = redis.call('HMGET', KEYS[1], 'w' .. line[1], 'w' .. (line[2] or line[1]))
      heir = line[1]
      owner, lease, any, channel = string.match(waits[1] or '', '^([^\n]*)\n(%d+)\n1(~?)\n0\n(.*)$')
      ordinary = owner and lease + 0 <= 86400000000 and heir ~= ARGV[1] and (any == '~' or f[12] == '1') and string.find(waits[2] or '', '^[^\n]*\n%d+\n1~?\n')
    end
    if ordinary then
      redis.call('SET', KEYS[4], 'released', 'PX', string.format('%.0f', ARGV[9] / 1000))
      if heir then
        floor, longest = math.max(floor + 1, now), math.max(longest, lease + 0)
        local token, expiry = string.format('%.0f', floor), string.format('%.0f', now + 1000000) -- the same as CONFIRM in queue.lua
        redis.call('HDEL', KEYS[1], 's0', 'o0', 'h0', 'i' .. ARGV[1], 'w' .. heir)
        redis.call('HSET', KEYS[1], 'floor', token, 't0', token, 'longest', string.format('%.0f', longest), 'limit', '1', 'i' .. heir, '0', 'e0', expiry,
          'r0', heir .. '\n' .. owner .. '\n' .. lease .. '\n' .. token .. '\n\n1\n\n')
        redis.call('ZREM', KEYS[5], heir)
        redis.call('ZREM', KEYS[6], heir)
        local sharded, name = string.match(channel, '^(s?):(.*)$')
        redis.pcall(sharded == 's' and 'SPUBLISH' or 'PUBLISH', name, -- the ACL may forbid it
          table.concat({heir, '0', token, expiry, string.format('%.0f', now), string.format('%.0f', longest)}, ' '))
      else
        local fields = 0 -- the number of fields that are floor, longest, or not needed while the lock is free
        for i = 1, 15 do fields = fields + (f[i] and 1 or 0) end
        compact = idle > 0 and f[12] == '1' and low == 0 and delay == 0 and closed <= now and not string.find(f[1] .. f[2], '%D')
          and fields == redis.call('HLEN', KEYS[1])
        if not compact then redis.call('HDEL', KEYS[1], 'r0', 'e0', 's0', 'o0', 'h0', 'i' .. ARGV[1]) end
      end
      local life = string.format('%.0f', math.max(idle, 2 * longest) / 1000)
      if compact then
        redis.call('SET', KEYS[1], string.sub('000000000000000' .. f[1], -16) .. ' 0 ' .. f[2], 'PX', life) -- see acquire_compact.lua
        return {'released', now, floor, longest, 0, '', 0, 'compact'}
      elseif idle > 0 then
        redis.call('PEXPIRE', KEYS[1], life)
        if line[2] then
          redis.call('PEXPIRE', KEYS[5], life)
          redis.call('PEXPIRE', KEYS[6], life)
        end
      end
      return {'released', now, floor, longest, low, '', 0}
    end
  end
end
end)
if done and got then return got end
