-- quorum_folded_claim.lua: the ordinary case of quorum_claim.lua, put before it: a plain request for a lock of which a node has nothing to say but its
-- newest token and who has it. Such a lock is folded, a string: "token lease id\nowner\nexpiry" while it is held, and "token lease id" once that id has
-- given it back. It is written by nothing else; whatever is out of the ordinary goes on to the whole text, which unfolds it and decides the same.
--
-- KEYS and the first three of ARGV are those of quorum_claim.lua.
-- ARGV  4 lease  5 token  6 owner, and no more: the rest is as for the only row, without delay or register

local ARGV = ARGV
if #ARGV == 6 then
  local clock = redis.call('TIME')
  local now = clock[1] * 1000000 + clock[2]
  local m = redis.call('HMGET', KEYS[1], 'state', 'base', 'top', 'longest')
  local lease, token, floor = ARGV[4] + 0, ARGV[5] + 0, (m[2] or 0) + 0
  local was, free = redis.pcall('GET', KEYS[2]), true
  if type(was) == 'string' then
    local known, last, held = string.match(was, '^(%d+) %d+ ([^\n]*)(\n?)')
    free, floor = held == '' and last ~= ARGV[1], math.max(floor, (known or 0) + 0)
  elseif was then -- a hash; it is folded again where there is nothing else in it
    local f = redis.pcall('HMGET', KEYS[2], 'r0', 'floor', 'limit', 'dead', 'longest')
    local fields = 0
    for i = 1, 5 do fields = fields + (f[i] and 1 or 0) end
    free = not f.err and fields == redis.call('HLEN', KEYS[2])
      and (not f[1] or string.byte(f[1]) == 45 and f[1] ~= '-' .. ARGV[1]) and (not f[3] or f[3] == '1') and (not f[4] or f[4] + 0 < now)
    floor = math.max(floor, (f[2] or 0) + 0)
  end
  local idle = ARGV[3] + 0
  if free and m[1] == 'voting' and now <= ARGV[2] + 0 and token > floor and token - math.max(now, floor) <= 60000000 and idle > 0 then
    redis.call('SET', KEYS[2], ARGV[5] .. ' ' .. ARGV[4] .. ' ' .. ARGV[1] .. '\n' .. ARGV[6] .. '\n' .. string.format('%.0f', now + lease),
      'PX', string.format('%.0f', math.max(idle, 2 * lease) / 1000))
    local top, longest = (m[3] or 0) + 0, (m[4] or 0) + 0
    if token > top or lease > longest then -- as save() in quorum.lua
      redis.call('HSET', KEYS[1], 'top', string.format('%.0f', math.max(top, token + 1000000)), 'longest', string.format('%.0f', math.max(longest, lease)))
    end
    return {'yes', now, token, 0, token}
  end
  ARGV = {ARGV[1], ARGV[2], ARGV[3], '0', '1', ARGV[4], '0', '1', ARGV[5], '', ARGV[6], 'but,0,', '', '', '0', '0'}
end
