-- quorum_found.lua: has a new node take part in the beginning of a quorum, a majority of which is new and there.
--
-- KEYS  1 member, as in quorum.lua
-- ARGV   1 epoch  of which was asked
--        2 quiet  how long nothing may have reached it since it has its marker
-- Reply: founder | wait, for how long | other: it has forgotten once more, votes, or is not new
--
-- Why it is atomic: a renewal that comes between the look and the mark shows that there is a
-- holder.

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local m = redis.call('HMGET', KEYS[1], 'state', 'epoch', 'since', 'founder', 'base', 'top', 'longest')
if m[1] ~= 'joining' or m[2] ~= ARGV[1] then return {'other', 0} end
if m[4] then return {'founder', 0} end
if m[5] or m[6] or m[7] then return {'other', 0} end
local left = (tonumber(m[3]) or now) + tonumber(ARGV[2]) - now
if left > 0 then return {'wait', left} end
redis.call('HSET', KEYS[1], 'founder', '1')
return {'founder', 0}
