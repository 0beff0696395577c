-- quorum_accept.lua: accepts the register (see quorum.lua) on one node, and with it the row of a run.
--
-- ARGV   4 ballot
--        5 value           the register
--        6 slot            -1: no row
--        7 lease
--        8 token           of the row
--        9 ends            '1': this also releases the lease id
--       10 tombstone_life
--       11 everyone        '1': the answer counts even if the node does not vote
-- Reply after the common part: the row was there (0 or 1)
--      accepted | stale: a later ballot was promised | lost: the row does not belong to this id | joining: written, but the answer does not count
--      late | stranger: the node has no marker
--
-- Why it is atomic: between the check and the write, the node could promise a later ballot, and report that it has accepted nothing. And the run is
-- granted only if its row is held at that moment.

if is_late() then return {'late', now, 0} end
if not m[1] then return {'stranger', now, 0} end
local ballot, slot, lease = num(ARGV[4]), ARGV[6], num(ARGV[7])
local f = redis.call('HMGET', LOCK, 'floor', 'longest', 'permanent', 'r' .. slot)
floor = math.max(floor, token_in(LOCK, 'floor', f[1]))
local lock_longest = math.min(number(LOCK, 'longest', f[2], EXACT), DAY + HOUR)
if ballot < floor then return {'stale', now, floor} end
local had, placed = 0, 0
if slot ~= '-1' then
  local row = row_of(f[4], slot)
  local held = row and row.id == id and row.expiry > now
  if not held and votes then return {'lost', now, floor} end
  if held then
    had, placed = 1, lease + row.delay
    row.token, row.expiry, row.state = num(ARGV[8]), now + lease, 'entered'
    set('r' .. slot, text_of(row))
  end
end
if ARGV[9] == '1' then
  if redis.call('GET', TOMBSTONE) == 'released' then had = 1 end -- a repeated request
  local fields = redis.call('HLEN', LOCK)
  if fields > 4 * SLOTS then corrupt(LOCK, 'number of fields', fields) end
  local all = redis.call('HGETALL', LOCK)
  for i = 1, #all, 2 do
    local row = string.match(all[i], '^r%d+$') and row_of(all[i + 1], string.sub(all[i], 2))
    if row and row.id == id then
      had = 1
      redis.call('HDEL', LOCK, all[i])
    end
  end
  redis.call('SET', TOMBSTONE, had == 1 and 'released' or 'gone', 'PX', int(num(ARGV[10]) / 1000))
end
if ARGV[9] == '1' then set('dead', int(now + num(ARGV[10]))) end
set('floor', int(ballot))
set('ballot', int(ballot))
set('value', ARGV[5])
save(ballot, placed, lock_longest, f[3] == '1')
redis.call('SADD', INDEX, LOCK)
return {(votes or ARGV[11] == '1') and 'accepted' or 'joining', now, ballot, had}
