-- quorum_release.lua: takes back the vote of one node, for good or only for earlier tries. It does not include quorum.lua, but its keys and
-- arguments have the same indexes.
--
-- ARGV   4 slot            -1: any
--        5 token           drop the tries up to this token; 0: release for good
--        6 tombstone_life
--        7 narrow          '1': at most a majority of nodes was asked for the lease, see quorum_release_fast.lua
-- Reply after the common part: nothing
--      released | gone: the row was not there | dropped
--
-- Why it is atomic: the row must belong to this id when it is deleted, and a later request with this id must find the tombstone. The script also runs
-- late, because it is never wrong to take back a vote.

local clock, id = redis.call('TIME'), ARGV[1]
local now, token = clock[1] * 1000000 + clock[2], tonumber(ARGV[5])
local tomb = redis.call('GET', KEYS[3])
if tomb == 'released' or tomb == 'gone' then return {tomb, now, 0} end -- a repeated request
local fields = {'r' .. ARGV[4], redis.call('HGET', KEYS[2], 'r' .. ARGV[4])}
if ARGV[4] == '-1' and redis.call('HLEN', KEYS[2]) > 4 * SLOTS then corrupt(KEYS[2], 'number of fields', redis.call('HLEN', KEYS[2])) end
if ARGV[4] == '-1' then fields = redis.call('HGETALL', KEYS[2]) end
local found = false
for i = 1, #fields, 2 do
  local row = fields[i + 1]
  if row and string.byte(fields[i]) == 114 and string.sub(row, 1, #id + 1) == id .. '\n'
    and (token == 0 or tonumber(string.match(row, '^[^\n]*\n(%d+)\n') or 0) <= token) then
    found = true
    redis.call('HDEL', KEYS[2], fields[i])
  end
end
local life = string.format('%.0f', tonumber(ARGV[6]) / 1000)
if redis.call('EXISTS', KEYS[2]) == 0 then
  redis.call('HSET', KEYS[2], 'dead', string.format('%.0f', now + tonumber(ARGV[6])))
  redis.call('PEXPIRE', KEYS[2], life)
else redis.call('HSET', KEYS[2], 'dead', string.format('%.0f', now + tonumber(ARGV[6]))) end
if token == 0 then
  local verdict = found and 'released' or 'gone'
  redis.call('SET', KEYS[3], verdict, 'PX', life)
  return {verdict, now, 0}
end
if not tomb or tonumber(tomb) and token > tonumber(tomb) then redis.call('SET', KEYS[3], ARGV[5], 'PX', life) end
return {'dropped', now, 0}
