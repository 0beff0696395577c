-- grant.lua: the ordinary case of acquire.lua, put before it: a lock with one row of which nobody has forgotten anything is
-- free, or another was granted the tick. It has no rules of its own: whatever is out of the ordinary goes on to the whole
-- text, which decides the same. It needs a fraction of the time, since it reads nothing that is empty then, and makes no functions.
--
-- KEYS and ARGV are those of acquire.lua.

-- one slot, may be granted, no adoption, no fan-out, no WAIT
if ARGV[10] == '1' and ARGV[14] ~= '1' and ARGV[15] == '' and (tonumber(ARGV[21]) or 0) <= 1 and ARGV[8] ~= '1' then
  local clock = redis.call('TIME')
  local now = clock[1] * 1000000 + clock[2]
  local f = redis.call('HMGET', KEYS[1], 'floor', 'longest', 'closed', 'low', 'since', 'digest', 'limit', 'permanent', 'delay',
    'delayed', 'i' .. ARGV[1], 'r0', 'last', 'by', 'e0', 'used', 'since2')
  local floor, longest, closed = tonumber(f[1]) or 0, tonumber(f[2]) or 0, tonumber(f[3]) or 0
  local low, since, limit = tonumber(f[4]) or 0, tonumber(f[5]) or 0, tonumber(f[7]) or 0
  local tick, previous, idle = tonumber(ARGV[17]), tonumber(ARGV[18]), tonumber(ARGV[3])
  local bound = now + 60000000 -- beyond it a clock has lied: see mend()
  local known = now <= tonumber(ARGV[2]) and tonumber(ARGV[4]) <= floor and tonumber(ARGV[6]) <= low and closed <= now
    and low * 1000000 <= bound and since <= bound and (tonumber(f[17]) or 0) <= bound and not f[11]
    and (idle > 0) ~= (f[8] == '1') and (ARGV[16] ~= '1' or limit == 0 or limit == 1)
    and tonumber(f[9] or '0') == tonumber(ARGV[27] or '0') and (f[10] or '') == ''
  if tick then -- of a schedule that the lock knows, in its turn, and in time
    known = known and f[6] == ARGV[22] and tick * 1000000 <= now and tonumber(ARGV[19]) <= now
  end
  local fresh = not tick or tick > low and tick * 1000000 > since and (previous <= low or previous * 1000000 <= since)
    and (ARGV[20] == '0' or now <= tonumber(ARGV[20]))
  known = known and (not f[16] or f[16] == '1') -- and never had another slot
  -- Neither row, tombstone, ledger, orphans nor queue.
  if known and fresh and not f[15] and redis.call('EXISTS', KEYS[4], KEYS[2], KEYS[3], KEYS[5] or KEYS[4]) == 0 then
    local lease = tonumber(ARGV[11])
    local token = math.max(floor + 1, now)
    local text, expiry = string.format('%.0f', token), now + lease
    local changes = {'floor', text, 't0', text, 'i' .. ARGV[1], '0', 'e0', string.format('%.0f', expiry), 'r0', table.concat({ARGV[1], ARGV[9], ARGV[11], text,
      ARGV[17] or '', '1', ARGV[12], ARGV[13]}, '\n')}
    local n = #changes
    if lease > longest then
      longest, changes[n + 1], changes[n + 2], n = lease, 'longest', ARGV[11], n + 2
    end
    if limit ~= 1 then
      changes[n + 1], changes[n + 2], n = 'limit', '1', n + 2
    end
    if not f[16] then
      changes[n + 1], changes[n + 2], n = 'used', '1', n + 2
    end
    if tick then
      low = tick
      changes[n + 1], changes[n + 2], changes[n + 3] = 'low', ARGV[17], 'last'
      changes[n + 4], changes[n + 5], changes[n + 6] = ARGV[17] .. ' granted', 'by', ARGV[1]
    end
    redis.call('HSET', KEYS[1], unpack(changes))
    if idle > 0 then
      redis.call('PEXPIRE', KEYS[1], string.format('%.0f', math.max(idle, 2 * longest, longest + (tonumber(f[9]) or 0)) / 1000))
    end
    return {'granted', now, token, longest, low, '', 0, 0, token, expiry, tick or 0, 1}
  end
  -- Granted, and still held: for those who lost.
  if known and tick and tick <= low and f[12] and f[15] and f[13] == ARGV[17] .. ' granted'
    and redis.call('EXISTS', KEYS[4], KEYS[2], KEYS[3], KEYS[5] or KEYS[4]) == 0 then
    local expiry = tonumber(f[15])
    local owner, of = string.match(f[12], '^[^\n]*\n([^\n]*)\n[^\n]*\n[^\n]*\n([^\n]*)\n')
    if expiry > now and expiry <= now + longest + 60000000 and of == ARGV[17] then
      return {'decided', now, floor, longest, low, '', 0, 'granted', expiry, owner}
    end
  end
end
