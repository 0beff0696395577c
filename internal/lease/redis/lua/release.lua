-- release.lua: ends a lease, and leaves a tombstone for later requests with its lease id.
--
-- ARGV   9 tombstone_life  the time within which earlier requests may still arrive
--       10 mode            '0': the work is over; '1': undo, the work never began, and its tick is open again; '2': hand over, the run is an orphan
--                          for a recovery. Omitted, like all that follow, if not needed
--       11 previous        the previous tick of the schedule
--       12 per_tick        the maximum number of grants of the tick
--       13 attempt         for mode '2': the last attempt that has begun
--       14 outcome         of the tick, for followers: '1' its run succeeded, '0' it failed, '' nothing is stored
--       15 zone            of the tick, as in zone_of(); omitted if the tick is not reopened
-- Reply after the common part: released | gone (the row was not there: expired, lost with the data, or released before)
--
-- Why it is atomic: the row must belong to the lease when it is deleted, and a renewal under way must not restore it.

local row = slot_of_id and row_at(slot_of_id)
local again = redis.call('GET', TOMBSTONE) -- a repeated request, whose first reply was lost, gets the same verdict
if again and again ~= 'released' and again ~= 'gone' then corrupt(TOMBSTONE, 'verdict', again) end
local verdict = again or (row and 'released' or 'gone')
local orphan, adopted = redis.call('HGET', ORPHANS, id), redis.call('HGET', LOCK, 'a' .. id)
local slot, place_of_orphan = slot_of_id, slot_of_id
local left, left_in, left_at -- the orphan of this lease, its slot, and its first line
if orphan then left, left_in, left_at = unpack_orphan(orphan, ORPHANS, id) end
local whose, text, _, first -- the lease id of the orphan that this run has adopted, the orphan's row, and its first line
if adopted then
  whose, text = string.match(adopted, '^([^\n]*)\n(.*)$')
  _, _, first, text = unpack_orphan(text or '', LOCK, 'a' .. id)
end
redis.call('SET', TOMBSTONE, verdict, 'PX', int(num(ARGV[9]) / 1000))
if again then return reply(verdict) end

if row then
  if (ARGV[10] or '0') ~= '0' or adopted then place_of_orphan = slot_of_orphan(slot, id) end
  vacate(slot, id)
elseif orphan then
  slot, place_of_orphan, row = left_in, left_at, left
end

local undo, leaves = ARGV[10] == '1', ARGV[10] == '2' -- leaves: the run remains as an orphan
local tick = row and tonumber(row.tick)
if leaves then -- after a loss of the lease, the run is an orphan, or a recovery has it: then row is nil and nothing is written
  if row and row.trigger ~= '' then
    if not orphan then row.attempt = int(num(ARGV[13])) end -- the attempt of an orphan is recorded already
    redis.call('HSET', ORPHANS, id, abandoned(place_of_orphan) .. '\n' .. pack_row(row))
  end
elseif undo and adopted then -- the orphan waits for another recovery; if this run was to stop, the orphan keeps its reason or gets this one
  local reason = string.match(place_of_orphan or '', '^%d+%+?( .*)$')
  if reason and not string.find(first, ' ', 1, true) then first = first .. reason end
  redis.call('HSET', ORPHANS, whose, first .. '\n' .. text)
elseif undo and row and num(row.attempt) > 1 then
  return reply(verdict) -- the lease of a recovery has ended, and its orphan has the tick
elseif undo and orphan and string.find(left_at, '[! ]') then
  return reply(verdict) -- it is abandoned, was to stop, or has succeeded: the tick stays decided, and a replica records the orphan
elseif undo and tick and digest ~= '' and (ARGV[15] or '') ~= zone_of(digest) then -- the ledger now has the ticks of another zone: a replica records the run
  leaves = row.trigger ~= ''
  if leaves then redis.call('HSET', ORPHANS, id, abandoned(place_of_orphan) .. '\n' .. pack_row(row)) end
elseif undo and tick then
  reopen(tick, slot, num(ARGV[11]), num(ARGV[12]))
end
if not leaves then redis.call('HDEL', ORPHANS, id) end -- its holder is alive and records the outcome itself
if row then touch() end
if tick and not undo and (ARGV[14] or '') ~= '' then conclude(tick, ARGV[14] == '1', num(ARGV[12])) end
if QUEUE and redis.call('EXISTS', QUEUE) == 1 then
  leave_line(id)
  local held = holds()
  if closed <= now then serve(held) end
end
return reply(verdict)
