-- fence.lua: remembers the greatest token of a resource, and refuses smaller ones. It stands alone, without state.lua; its
-- arguments and its reply have the same places.
--
-- KEYS  1 fence  string: the greatest token, in decimal
-- ARGV  1 (unused)  2 (unused)  3 how long to keep it when nobody asks (0: for good)  4 the greatest that the witness saw
--       5-8 (unused)  9 token
-- Reply: passed | stale, now, the greatest token, 0, 0, '', 0
--
-- Why it is atomic: between the comparison and the record a greater token could come. Why it may be done twice: the
-- greatest of some numbers is the same in any order, however often each is named.

local FENCE = KEYS[1]
local clock = redis.call('TIME')
local idle, token = tonumber(ARGV[3]), tonumber(ARGV[9])

local newest = math.max(tonumber(redis.call('GET', FENCE) or '0'), tonumber(ARGV[4]), token)
local left = redis.call('PTTL', FENCE) -- -1: somebody wants it for good; -2: there is none
redis.call('SET', FENCE, string.format('%.0f', newest)) -- also if it is the same: WAIT needs something to wait for
if idle > 0 and left ~= -1 then
  redis.call('PEXPIRE', FENCE, string.format('%.0f', math.max(left, math.ceil(idle / 1000))))
end
return {token == newest and 'passed' or 'stale', clock[1] * 1000000 + clock[2], newest, 0, 0, '', 0}
