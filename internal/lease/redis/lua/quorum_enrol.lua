-- quorum_enrol.lua: gives a node its marker (member), and detects a restart since then. It is sent with its text, before the other scripts are
-- loaded, on the same connection. A Redis that was restarted does not have the other scripts, so it does not vote before this script has run.
--
-- KEYS  1 member, as in quorum.lua
-- ARGV   1 epoch  of a new marker
-- Reply: state, now, base, top, longest, epoch, since, founder (1 or 0)
--
-- A restart counts as a loss of data, whatever is on the disk, because the last votes may be missing there.

local clock = redis.call('TIME')
local now = string.format('%.0f', clock[1] * 1000000 + clock[2])
local info = redis.pcall('INFO', 'server')
local run = type(info) == 'string' and string.match(info, 'run_id:(%x+)') or ''
local m = redis.call('HMGET', KEYS[1], 'state', 'run', 'since')
local function n(x, field) return number(KEYS[1], field, x, EXACT) end
local function token(x) return math.min(x, now + DAY) end -- a later token was never granted
if not m[1] or m[2] ~= run then
  redis.call('HSET', KEYS[1], 'state', 'joining', 'run', run, 'epoch', ARGV[1], 'since', now)
  redis.call('HDEL', KEYS[1], 'founder')
elseif n(m[3], 'since') > now + 0 then -- the clock was set back
  redis.call('HSET', KEYS[1], 'since', now)
end
m = redis.call('HMGET', KEYS[1], 'state', 'base', 'top', 'longest', 'epoch', 'since', 'founder')
return {m[1], now + 0, token(n(m[2], 'base')), token(n(m[3], 'top')), math.min(n(m[4], 'longest'), DAY + HOUR), m[5], n(m[6], 'since'), n(m[7], 'founder')}
