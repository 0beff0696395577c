-- quorum_found.lua: marks a new node as a founder. Founders start a quorum if a majority of the nodes is new and can be reached.
--
-- KEYS  1 member, as in quorum.lua
-- ARGV   1 epoch  of the node when it was asked
--        2 quiet  the time since the node got its marker for which no request may have reached it
-- Reply: founder | wait, remaining time | other: the node has lost its data again, votes, or is not new
--
-- Why it is atomic: a renewal between the check and the mark would show that the quorum is not new.

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
