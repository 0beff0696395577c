-- fence.lua: stores the greatest token of a resource, and refuses smaller tokens, and tokens that are ahead of the clock. It does not include
-- state.lua, but its arguments and its reply have the same indexes.
--
-- KEYS  1 fence  string: the greatest token, in decimal
-- ARGV   9 token  the token to check. 3: the time for which an unused fence is stored (0: forever), 4: the greatest token that the client has
--                 observed; 1, 2, 5 to 8: unused
-- Reply: passed | stale | ahead, now, the greatest token, 0, 0, '', 0
--
-- Why it is atomic: a greater token could arrive between the comparison and the write. The script may be repeated, because the greatest of several
-- tokens does not depend on their order, or on how often each arrives.
--
-- A token far ahead of the clock would close the resource until the clock reaches it. Such a token counts only if it is stored already and ahead by
-- at most a day. Otherwise it was never granted.

local FENCE = KEYS[1]
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local idle, token = tonumber(ARGV[3]), tonumber(ARGV[9])

local newest, seen = number(FENCE, 'token', redis.call('GET', FENCE), EXACT), num(ARGV[4])
if newest > now + DAY then newest = 0 end
if sound(seen, now + DAY) then newest = math.max(newest, seen) end
if token > math.max(now + MINUTE, newest) then return {'ahead', now, newest, 0, 0, '', 0} end
newest = math.max(newest, token)
local left = redis.call('PTTL', FENCE) -- -1: a caller wants the fence forever; -2: there is no fence
redis.call('SET', FENCE, int(newest)) -- even if it is the same, because WAIT covers only writes of this connection
if idle > 0 and left ~= -1 then
  redis.call('PEXPIRE', FENCE, int(math.max(left, math.ceil(idle / 1000))))
end
return {token == newest and 'passed' or 'stale', now, newest, 0, 0, '', 0}
