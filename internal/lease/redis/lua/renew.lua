-- renew.lua: extends a lease, or restores its row if the server has lost it.
--
-- ARGV   9 owner
--       10 slot
--       11 lease    the length of the lease
--       12 trigger
--       13 memo
--       14 token
--       15 tick     or ''
--       16 attempt  the newest proposed attempt
--       17 delay
--       18 slots
--       19 orphan   the lease id of the orphan that the run has adopted, or ''
-- Reply after the common part: renewed, expiry, restored (0 or 1), the reason why the holder is to stop (or '') | late | lost, reason, new holder
--
-- Why it is atomic: a row may be restored only if no later grant was made in its slot, and the lock must be closed to new grants in the same step. If
-- t<slot> has the token of the lease, or a greater one, the row has expired, and the lease is lost. Otherwise the server has lost the row, and the
-- script restores it. A lease id has one row, the row of its newest grant. If the server has a row of this id in another slot, the row with the
-- greater token is the newest: a server that was reset to an older state may have an older row.

if is_late() then return reply('late') end
if redis.call('EXISTS', TOMBSTONE) == 1 then return reply('lost', 'released', '') end

remember()
local slot, lease, token = ARGV[10], num(ARGV[11]), num(ARGV[14])
local found = redis.call('HMGET', LOCK, 'r' .. slot, 's' .. slot, 'h' .. slot)
local row = found[1] and unpack_row(found[1], LOCK, 'r' .. slot)
if row and row.id == id then
  set('e' .. slot, int(now + lease))
  if row.trigger ~= '' and found[3] ~= id then set('h' .. slot, id) end
  if num(ARGV[16]) > num(row.attempt) and row.attempt ~= UNHEARD then -- a recovery continues with the next number
    row.attempt = ARGV[16]
    set('r' .. slot, pack_row(row))
  end
  touch()
  local whose, reason = string.match(found[2] or '', '^([^\n]*)\n([^\n]*)')
  return reply('renewed', now + lease, 0, whose == id and reason or '')
end
local other = slot_of_id and slot_of_id ~= slot and row_at(slot_of_id)
if redis.call('HEXISTS', ORPHANS, id) == 1 or other and num(other.token) >= token then return reply('lost', 'expired', '') end
if token > math.max(floor, now + DAY) then return reply('lost', 'expired', '') end -- the token is from a floor that was corrected since
if number(LOCK, 't' .. slot, redis.call('HGET', LOCK, 't' .. slot), EXACT) >= token then
  return reply('lost', 'expired', row and row.owner or '')
end

if row then vacate(slot, row.id) end
if other then redis.call('HDEL', LOCK, 'r' .. slot_of_id, 'e' .. slot_of_id) end
place(slot, {id = id, owner = ARGV[9], lease = int(lease), token = int(token), tick = ARGV[15],
  attempt = ARGV[16], trigger = ARGV[12], memo = ARGV[13]}, now + lease)
if ARGV[12] ~= '' then set('h' .. slot, id) end
floor, longest = math.max(floor, token), math.max(longest, lease, num(ARGV[5]))
closed = math.max(closed, now + longest)
set('floor', int(floor))
set('longest', int(longest))
set('closed', int(closed))
if limit == 0 and ARGV[18] then set('limit', ARGV[18]) end -- older clients do not send the number
set_delay(math.max(delay, num(ARGV[17])))
if (ARGV[19] or '') ~= '' then redis.call('HDEL', ORPHANS, ARGV[19]) end -- the server has lost the adoption
touch()
return reply('renewed', now + lease, 1, '')
