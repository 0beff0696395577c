-- mark_succeeded.lua: marks the work of a lease as ended well, before its outcome is recorded and it is
-- released: if its holder dies in between, its orphan has the mark.
--
-- ARGV   9 per_tick  grants of the tick
--       10 followed  '1': also for jobs that follow the tick
-- Reply after the common part: noted | gone | late
--
-- Why it is atomic: the mark decides whether an orphan is recovered, and whether its tick is spoiled.

if is_late() then return reply('late') end
local row = slot_of_id and row_at(slot_of_id)
if not row or row.id ~= id then return reply('gone') end
set('o' .. slot_of_id, id)
if ARGV[10] == '1' and tonumber(row.tick) then conclude(tonumber(row.tick), true, num(ARGV[9])) end
touch()
return reply('noted')
