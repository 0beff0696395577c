-- grant.lua: the ordinary case of acquire.lua, put before it: a lock with one row of which nobody has forgotten anything is
-- free, or another was granted the tick. It has no rules of its own: whatever is out of the ordinary goes on to the whole
-- text, which decides the same. It needs a fraction of the time, since it reads nothing that is empty then, and makes no functions.
--
-- KEYS and ARGV are those of acquire.lua.

-- one slot, may be granted, no adoption, no fan-out, no WAIT
if ARGV[9] == '1' and ARGV[13] ~= '1' and ARGV[14] == '' and tonumber(ARGV[20]) <= 1 and ARGV[#ARGV] ~= '1' then
  local clock = redis.call('TIME')
  local now = clock[1] * 1000000 + clock[2]
  local f = redis.call('HMGET', KEYS[1], 'floor', 'longest', 'closed', 'low', 'since', 'digest', 'limit', 'permanent', 'delay',
    'delayed', 'i' .. ARGV[1], 'r0', 'last', 'by')
  local floor, longest, closed = tonumber(f[1]) or 0, tonumber(f[2]) or 0, tonumber(f[3]) or 0
  local low, since, limit = tonumber(f[4]) or 0, tonumber(f[5]) or 0, tonumber(f[7]) or 0
  local tick, previous, idle = tonumber(ARGV[16]), tonumber(ARGV[17]), tonumber(ARGV[3])
  local bound = now + 60000000 -- beyond it a clock has lied: see mend()
  local known = now <= tonumber(ARGV[2]) and tonumber(ARGV[4]) <= floor and tonumber(ARGV[6]) <= low and closed <= now
    and low * 1000000 <= bound and since <= bound and not f[11]
    and (idle > 0) ~= (f[8] == '1') and (ARGV[15] ~= '1' or limit == 0 or limit == 1)
    and tonumber(f[9] or '0') == tonumber(ARGV[26] or '0') and (f[10] or '') == ''
  if tick then -- of a schedule that the lock knows, in its turn, and in time
    known = known and f[6] == ARGV[21] and tick * 1000000 <= now and tonumber(ARGV[18]) <= now
  end
  local fresh = not tick or tick > low and tick * 1000000 > since and (previous <= low or previous * 1000000 <= since)
    and (ARGV[19] == '0' or now <= tonumber(ARGV[19]))
  -- Neither tombstone, rows, ledger, orphans nor queue.
  if known and fresh and not f[12] and redis.call('EXISTS', KEYS[5], KEYS[2], KEYS[3], KEYS[4], KEYS[6] or KEYS[5]) == 0 then
    local lease = tonumber(ARGV[10])
    local token = math.max(floor + 1, now)
    local text, expiry = string.format('%.0f', token), now + lease
    local changes = {'floor', text, 't0', text, 'i' .. ARGV[1], '0', 'r0', table.concat({ARGV[1], ARGV[8], ARGV[10], text,
      ARGV[16], '1', ARGV[11], ARGV[12]}, '\n')}
    local n = #changes
    if lease > longest then
      longest, changes[n + 1], changes[n + 2], n = lease, 'longest', ARGV[10], n + 2
    end
    if limit ~= 1 then
      changes[n + 1], changes[n + 2], n = 'limit', '1', n + 2
    end
    if tick then
      low = tick
      changes[n + 1], changes[n + 2], changes[n + 3] = 'low', ARGV[16], 'last'
      changes[n + 4], changes[n + 5], changes[n + 6] = ARGV[16] .. ' granted', 'by', ARGV[1]
    end
    redis.call('HSET', KEYS[1], unpack(changes))
    redis.call('ZADD', KEYS[2], string.format('%.0f', expiry), '0')
    if idle > 0 then
      local life = string.format('%.0f', math.max(idle, 2 * longest) / 1000)
      redis.call('PEXPIRE', KEYS[1], life)
      redis.call('PEXPIRE', KEYS[2], life)
    end
    return {'granted', now, token, longest, low, '', 0, 0, token, expiry, tick or 0, 1}
  end
  -- Granted, and still held: for those who lost.
  if known and tick and tick <= low and f[12] and f[13] == ARGV[16] .. ' granted'
    and redis.call('EXISTS', KEYS[5], KEYS[3], KEYS[4], KEYS[6] or KEYS[5]) == 0 then
    local rows = redis.call('ZRANGE', KEYS[2], 0, -1, 'WITHSCORES')
    local expiry = tonumber(rows[2])
    local owner, of = string.match(f[12], '^[^\n]*\n([^\n]*)\n[^\n]*\n[^\n]*\n([^\n]*)\n')
    if rows[1] == '0' and #rows == 2 and expiry > now and expiry <= now + longest + 60000000 and of == ARGV[16] then
      return {'decided', now, floor, longest, low, '', 0, 'granted', expiry, owner}
    end
  end
end
