-- mark_succeeded.lua: records that the work of a lease has succeeded, before its outcome is recorded and the lease is released. If the holder dies
-- in between, its orphan has the mark.
--
-- ARGV   9 per_tick  the maximum number of grants of the tick
--       10 followed  '1': also store the outcome of the tick for followers
-- Reply after the common part: noted | gone | late
--
-- Why it is atomic: the mark decides whether an orphan is recovered, and whether its tick counts as failed.

if is_late() then return reply('late') end
local row = slot_of_id and row_at(slot_of_id)
if not row or row.id ~= id then return reply('gone') end
set('o' .. slot_of_id, id)
if ARGV[10] == '1' and tonumber(row.tick) then conclude(tonumber(row.tick), true, num(ARGV[9])) end
touch()
return reply('noted')
