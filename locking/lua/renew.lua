-- renew.lua: extends a lease, or puts its row back where the server has forgotten it.
--
-- ARGV   8 owner  9 slot  10 lease  11 trigger  12 memo  13 token  14 tick (or '')  15 attempt
-- Reply after the common part: renewed, expiry, put back (0 or 1) | late | lost, why, by whom
--
-- Why it is atomic: a row may be put back only if no later grant was made in its slot, and the lock must be
-- closed to new grants in the same step. t<slot> tells an expired row (same token: lost) from a forgotten one.

if is_late() then return reply('late') end
if redis.call('EXISTS', TOMBSTONE) == 1 then return reply('lost', 'released', '') end

remember()
local slot, lease, token = ARGV[9], num(ARGV[10]), num(ARGV[13])
local row = row_at(slot)
if row and row.id == id then
  redis.call('ZADD', EXPIRY, int(now + lease), slot)
  touch()
  return reply('renewed', now + lease, 0)
end
if redis.call('HEXISTS', ORPHANS, id) == 1 then return reply('lost', 'expired', '') end
if num(redis.call('HGET', LOCK, 't' .. slot)) >= token then
  return reply('lost', 'expired', row and row.owner or '')
end

if row then redis.call('HDEL', LOCK, 'i' .. row.id, 'a' .. row.id) end
place(slot, {id = id, owner = ARGV[8], lease = int(lease), token = int(token), tick = ARGV[14],
  attempt = ARGV[15], trigger = ARGV[11], memo = ARGV[12]}, now + lease)
floor, longest = math.max(floor, token), math.max(longest, lease, num(ARGV[5]))
closed = math.max(closed, now + longest)
set('floor', int(floor))
set('longest', int(longest))
set('closed', int(closed))
touch()
return reply('renewed', now + lease, 1)
