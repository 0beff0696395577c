-- remove.lua: deletes all keys of a lock that is not used any more, unless it is held, a run of it is still to
-- be recorded, it was used after an instant, or it is paused: a pause is set by people, and holds for a job that
-- comes back, too.
--
-- ARGV   9 unused_since  instant
-- Reply after the common part: removed | used
--
-- Why it is atomic: a client that takes the lock up again at the same time either keeps it from going, or finds
-- a new one. A server without the lock is one that has forgotten it: a client that had observed it says so, and
-- for others its schedule begins now.

if is_late() then return reply('late') end
remember_pause()
local held, since_then = holds(), num(ARGV[9])
local till = string.match(paused, '^%d+,%d+,(%d+)')
if till == '0' or num(till) > now then return reply('used') end
if #held > 0 or redis.call('HLEN', ORPHANS) > 0 or math.max(floor, closed, since, since2, low * 1000000) > since_then then return reply('used') end
redis.call('DEL', LOCK, LEDGER, ORPHANS)
return {'removed', now, 0, 0, 0, '', 0}
