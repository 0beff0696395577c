-- remove.lua: deletes all keys of a lock that is no longer used, unless it is held, has an orphan, was used after an
-- instant, or is paused: people set a pause, and it also holds for a job that comes back.
--
-- ARGV   9 unused_since  instant
-- Reply after the common part: removed | used
--
-- Why it is atomic: a client that uses the lock again at the same time either keeps it from being deleted, or finds
-- a new one. A server without the lock has forgotten it: a client that has observed it reminds the server, and
-- for other clients its schedule begins now.

if is_late() then return reply('late') end
remember_pause()
local held, since_then = holds(), num(ARGV[9])
local till = string.match(paused, '^%d+,%d+,(%d+)')
if till == '0' or num(till) > now then return reply('used') end
if #held > 0 or redis.call('HLEN', ORPHANS) > 0 or math.max(floor, closed, since, since2, low * 1000000) > since_then then return reply('used') end
redis.call('DEL', LOCK, LEDGER, ORPHANS)
return {'removed', now, 0, 0, 0, '', 0}
