-- quorum_found.lua: marks a new node as a founder. It takes part in the beginning of a quorum, if a majority is new and can be reached.
--
-- KEYS  1 member, as in quorum.lua
-- ARGV   1 epoch  of the node when it was asked
--        2 quiet  time for which nothing may have reached it since it got its marker
-- Reply: founder | wait, time to wait | other: it has forgotten once more, votes, or is not new
--
-- Why it is atomic: a renewal between the check and the mark would show that there is a holder.

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
