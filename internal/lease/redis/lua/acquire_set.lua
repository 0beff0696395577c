-- acquire_set.lua: grants a slot in each of several locks, or in none. acquire and release are the scripts with these names as functions of the
-- keys and arguments of one lock. They have the rules.
--
-- KEYS  the keys of each lock, one lock after the other
-- ARGV   1 lease id of the first lock  2 not-after  3 number of locks  4 number of arguments of acquire; then the arguments of acquire for each
--        lock, then the arguments of release for each lock
-- Reply: granted, 0, the reply of acquire for each lock
--        late, 0, the reply of acquire for the first lock
--        refused, the number of the lock that refused (from 1), its reply of acquire, the reply of release for each lock
--
-- After a refusal, all lease ids of the set are dead: none is ever granted again. Otherwise a request that arrives twice, or a repeated request for
-- a set that was granted and partly lost, could leave some of the slots held.

local locks, acquires, FIRST = tonumber(ARGV[3]), tonumber(ARGV[4]), 5
local LATER = '9007199254740991' -- the not-after of all locks but the first, so that the set is late as a whole or not at all
local keys_each, releases = #KEYS / locks, (#ARGV - FIRST + 1) / locks - acquires

local function part(list, from, n)
  local out = {}
  for i = 1, n do out[i] = list[from + i - 1] end
  return out
end

local keys, args, undoing = {}, {}, {}
for i = 1, locks do
  keys[i] = part(KEYS, (i - 1) * keys_each + 1, keys_each)
  args[i] = part(ARGV, (i - 1) * acquires + FIRST, acquires)
  undoing[i] = part(ARGV, locks * acquires + (i - 1) * releases + FIRST, releases)
end

-- A call fails if the keys of a lock hold something else. The other locks are released nevertheless.
local function undo(replies)
  for i = 1, locks do
    local done, got = pcall(release, keys[i], undoing[i])
    replies[#replies + 1] = done and got or {}
  end
  return replies
end

-- A repeated request for a held set gets the same grants. A set that was refused, or was lost or released in part, is dead. Its remaining rows stay
-- with the holder, because this request may have arrived twice.
local held = 0
for i = 1, locks do
  if redis.call('EXISTS', keys[i][4]) == 1 then held = -locks end
  if redis.pcall('HEXISTS', keys[i][1], 'i' .. args[i][1]) == 1 then held = held + 1 end
end
if held < 0 or held > 0 and held < locks then
  local clock = redis.call('TIME')
  return {'refused', 1, {'dead', clock[1] * 1000000 + clock[2], 0, 0, 0, '', 0}}
end

local granted = {'granted', 0}
for i = 1, locks do
  if i > 1 then args[i][2] = LATER end
  local done, got = pcall(acquire, keys[i], args[i])
  if not done then
    undo({})
    error(got)
  end
  if got[1] == 'late' then return {'late', 0, got} end -- its time corrects the estimate of the client
  if got[1] ~= 'granted' then return undo({'refused', i, got}) end
  granted[#granted + 1] = got
end
return granted
