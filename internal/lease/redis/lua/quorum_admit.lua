-- quorum_admit.lua: lets a node vote, after a client has copied the state of a majority of the others to it.
--
-- KEYS  1 member, as in quorum.lua
-- ARGV   1 epoch    of the node when the others were asked
--        2 base     the greatest token of the others
--        3 longest  the longest lease of the others
-- Reply: voting | wait, remaining time | other: the node has lost its data again

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local m = redis.call('HMGET', KEYS[1], 'state', 'base', 'longest', 'epoch', 'since')
local function n(field, x) return number(KEYS[1], field, x, EXACT) end
local function token(x) return x <= now + DAY and x or now end -- a token more than a day ahead of the clock was never granted, and counts as now
if m[4] ~= ARGV[1] then return {'other', 0} end
if m[1] == 'voting' then return {'voting', 0} end
local longest = math.min(math.max(n('longest', m[3]), num(ARGV[3])), DAY + HOUR)
local left = n('since', m[5]) + longest - now
if left > 0 then return {'wait', left} end
redis.call('HSET', KEYS[1], 'state', 'voting', 'base', string.format('%.0f', math.max(token(n('base', m[2])), token(num(ARGV[2])))),
  'longest', string.format('%.0f', longest))
return {'voting', 0}
