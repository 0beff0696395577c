-- quorum_stop.lua: marks a row on one node, so that the node's reply to the next renewal asks the holder to stop. It does not include quorum.lua, but
-- its keys and arguments have the same indexes.
--
-- ARGV   4 slot
--        5 reason
-- Reply after the common part: nothing
--      asked | gone: the row does not belong to this id | late
--
-- s<slot> of LOCK is the mark: "lease id\nreason". It counts only for the lease that it names, so it need not be deleted.
--
-- Why it is atomic: the row must belong to this id when it is marked.

local clock, id = redis.call('TIME'), ARGV[1]
local now = clock[1] * 1000000 + clock[2]
if now > tonumber(ARGV[2]) then return {'late', now, 0} end
local row = redis.call('HGET', KEYS[2], 'r' .. ARGV[4])
if not row or string.sub(row, 1, #id + 1) ~= id .. '\n' then return {'gone', now, 0} end
redis.call('HSET', KEYS[2], 's' .. ARGV[4], id .. '\n' .. ARGV[5])
return {'asked', now, 0}
