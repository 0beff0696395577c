-- fence.lua: keeps the greatest token of a resource, and refuses smaller ones, and tokens that are ahead of the clock. It does not include state.lua; its
-- arguments and its reply have the same indexes.
--
-- KEYS  1 fence  string: the greatest token, in decimal
-- ARGV   9 token  to be checked. 3: the time for which an unused fence is kept (0: for good), 4: the greatest token observed; 1, 2, 5 to 8: unused
-- Reply: passed | stale | ahead, now, the greatest token, 0, 0, '', 0
--
-- Why it is atomic: between the comparison and the record a greater token could come. Why it may be done twice: the
-- greatest of several numbers is the same in any order, however often each occurs.
--
-- A token that is ahead of every clock would close the resource until a clock reaches it. A token that is recorded already counts, unless it is ahead by
-- more than a day: it was never granted.

local FENCE = KEYS[1]
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local idle, token = tonumber(ARGV[3]), tonumber(ARGV[9])

local newest, seen = number(FENCE, 'token', redis.call('GET', FENCE), EXACT), num(ARGV[4])
if newest > now + DAY then newest = 0 end
if sound(seen, now + DAY) then newest = math.max(newest, seen) end
if token > math.max(now + MINUTE, newest) then return {'ahead', now, newest, 0, 0, '', 0} end
newest = math.max(newest, token)
local left = redis.call('PTTL', FENCE) -- -1: a caller wants it for good; -2: there is none
redis.call('SET', FENCE, int(newest)) -- even if it is the same: WAIT needs something to wait for
if idle > 0 and left ~= -1 then
  redis.call('PEXPIRE', FENCE, int(math.max(left, math.ceil(idle / 1000))))
end
return {token == newest and 'passed' or 'stale', now, newest, 0, 0, '', 0}
