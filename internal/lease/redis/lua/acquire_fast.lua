-- acquire_fast.lua: the common cases of acquire.lua, placed before it. The lock has one slot, and the server has lost no data. Either the lock
-- is free, or another claim was granted the tick, or the request waits in the queue. This script has no rules of its own: in all other cases the
-- full script follows, which would decide these cases in the same way. It takes a fraction of the time, because it reads nothing that is empty in
-- these cases, and creates no helper functions. It converts strings to numbers by adding 0, which takes a third of tonumber's time. That fails for
-- a string that is not a number, which is another case for the full script.
--
-- KEYS and ARGV are the same as in acquire.lua.

local done, got = pcall(function() -- a string that is not a number fails here before anything is written; the full script then reports it
-- one slot; no abstain, adoption, fan-out, WAIT or delay
if ARGV[10] == '1' and ARGV[14] ~= '1' and ARGV[15] == '' and (ARGV[21] or 0) + 0 <= 1 and ARGV[8] ~= '1' and (ARGV[27] or '0') == '0' then
  local clock = redis.call('TIME')
  local now = clock[1] * 1000000 + clock[2]
  local f = redis.pcall('HMGET', KEYS[1], 'floor', 'longest', 'closed', 'low', 'since', 'digest', 'limit', 'permanent', 'delay',
    'i' .. ARGV[1], 'r0', 'last', 'e0', 'used', 'since2', 'paused', 'from', 'behind')
  local hash = not f.err -- otherwise the lock is compact, or the key holds something else
  local floor, longest, closed, low, since = (f[1] or 0) + 0, (f[2] or 0) + 0, (f[3] or 0) + 0, (f[4] or 0) + 0, (f[5] or 0) + 0
  local tick, idle = (ARGV[17] or '') ~= '' and ARGV[17] + 0, ARGV[3] + 0
  local bound, day = now + 60000000, 86400000000 -- values beyond these come from a wrong clock: see state.lua, and its mend()
  local known = hash and now <= ARGV[2] + 0 and ARGV[4] + 0 <= floor and ARGV[6] + 0 <= low and closed <= now
    and low * 1000000 <= bound and since <= bound and (f[15] or 0) + 0 <= bound and not f[10] and not f[9]
    and floor >= 0 and floor <= now + day and longest >= 0 and longest <= day and closed >= 0 and low >= 0
    and (idle > 0) ~= (f[8] == '1') and (ARGV[16] ~= '1' or not f[7] or f[7] == '1')
    and (not f[14] or f[14] == '1') -- the lock never had another slot
  if f[17] and f[17] ~= '0' or tick and (f[18] or '0') ~= (ARGV[30] or '0') then known = false end
  if f[16] then -- known only if the pause is over and the client has observed it
    local till = string.match(f[16], '^%d+,%d+,(%d+)') + 0
    known = known and ARGV[7] == '!' .. f[16] and till > 0 and till <= now and (not tick or till <= (tick + (ARGV[30] or 0)) * 1000000)
  elseif string.byte(ARGV[7]) == 33 then
    known = false
  end
  local fresh = not tick
  if tick then -- the lock knows the schedule, all earlier ticks are decided, and the tick is due and not late
    local previous = ARGV[18] + 0
    known = known and f[6] == ARGV[22] and tick * 1000000 <= now and ARGV[19] + 0 <= now
    fresh = tick > low and tick * 1000000 > since and (previous <= low or previous * 1000000 <= since)
      and (ARGV[20] == '0' or now <= ARGV[20] + 0)
  end
  -- The request is granted, because there is no row, tombstone, ledger, orphan or queue.
  if known and fresh and not f[13] and redis.call('EXISTS', KEYS[4], KEYS[2], KEYS[3], KEYS[5] or KEYS[4]) == 0 then
    local token, expiry = floor + 1, now + ARGV[11]
    if token < now then token = now end
    local text = string.format('%.0f', token)
    local changes = {'floor', text, 't0', text, 'i' .. ARGV[1], '0', 'e0', string.format('%.0f', expiry), 'r0', ARGV[1] .. '\n' .. ARGV[9] .. '\n'
      .. ARGV[11] .. '\n' .. text .. '\n' .. (ARGV[17] or '') .. '\n1\n' .. ARGV[12] .. '\n' .. ARGV[13]}
    local n = #changes
    if expiry - now > longest then
      longest, changes[n + 1], changes[n + 2], n = expiry - now, 'longest', ARGV[11], n + 2
    end
    if f[7] ~= '1' then
      changes[n + 1], changes[n + 2], n = 'limit', '1', n + 2
    end
    if not f[14] then
      changes[n + 1], changes[n + 2], n = 'used', '1', n + 2
    end
    if tick then
      low = tick
      changes[n + 1], changes[n + 2], changes[n + 3] = 'low', ARGV[17], 'last'
      changes[n + 4], changes[n + 5], changes[n + 6] = ARGV[17] .. ' granted', 'by', ARGV[1]
    end
    redis.call('HSET', KEYS[1], unpack(changes))
    if idle > 0 then
      redis.call('PEXPIRE', KEYS[1], string.format('%.0f', math.max(idle, 2 * longest) / 1000))
    end
    return {'granted', now, token, longest, low, '', 0, 0, token, expiry, tick or 0, 1}
  end
  -- The tick was granted to another claim, whose lease is still held.
  if known and tick and tick <= low and f[11] and f[13] and f[12] == ARGV[17] .. ' granted'
    and redis.call('EXISTS', KEYS[4], KEYS[2], KEYS[3], KEYS[5] or KEYS[4]) == 0 then
    local expiry = f[13] + 0
    local owner, of = string.match(f[11], '^[^\n]*\n([^\n]*)\n[^\n]*\n[^\n]*\n([^\n]*)\n')
    if expiry > now and expiry <= now + longest + 60000000 and of == ARGV[17] then
      return {'decided', now, floor, longest, low, '', 0, 'granted', expiry, owner}
    end
  end
  -- The lock is held, so the request waits in the queue. No waiter in the queue has to be dropped.
  if known and not tick and KEYS[5] and (ARGV[25] or '') ~= '' and f[11] and f[13]
    and redis.call('EXISTS', KEYS[4], KEYS[2], KEYS[3]) == 0 and redis.call('ZCOUNT', KEYS[6], '-inf', string.format('%.0f', now)) == 0 then
    local expiry = f[13] + 0
    if expiry > now and expiry <= now + longest + 60000000 then
      if not redis.call('ZSCORE', KEYS[5], ARGV[1]) then
        redis.call('ZADD', KEYS[5], redis.call('HINCRBY', KEYS[1], 'came', 1), ARGV[1])
        redis.call('HSET', KEYS[1], 'w' .. ARGV[1], ARGV[9] .. '\n' .. ARGV[11] .. (ARGV[16] == '1' and '\n1\n0\n' or '\n1~\n0\n') .. ARGV[25])
      end
      redis.call('ZADD', KEYS[6], string.format('%.0f', now + ARGV[26]), ARGV[1])
      local life = string.format('%.0f', math.max(idle, 2 * longest) / 1000)
      for _, key in ipairs({KEYS[1], KEYS[5], KEYS[6]}) do redis.call('PEXPIRE', key, life) end
      local owner = string.match(f[11], '^[^\n]*\n([^\n]*)\n')
      return {'queued', now, floor, longest, low, '', 0, expiry, owner, redis.call('ZRANK', KEYS[5], ARGV[1])}
    end
  end
end
end)
if done and got then return got end
