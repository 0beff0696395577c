-- remove.lua: deletes all keys of a lock that is no longer used. It keeps the lock if it is held, has an orphan, was used after an instant, or is
-- paused, because the pause that a user has set must still hold if the job is added again.
--
-- ARGV   9 unused_since  instant
-- Reply after the common part: removed | used
--
-- Why it is atomic: a client that uses the lock again at the same time either prevents the deletion, or finds a new lock. A client that has observed
-- the deleted lock restores its state, as after a loss of data. For other clients, its schedule begins now.

if is_late() then return reply('late') end
remember_pause()
local held, since_then = holds(), num(ARGV[9])
local till = string.match(paused, '^%d+,%d+,(%d+)')
if till == '0' or num(till) > now then return reply('used') end
if #held > 0 or redis.call('HLEN', ORPHANS) > 0 or math.max(floor, closed, since, since2, low * 1000000) > since_then then return reply('used') end
redis.call('DEL', LOCK, LEDGER, ORPHANS)
return {'removed', now, 0, 0, 0, '', 0}
