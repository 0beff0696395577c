-- quorum_renew.lua: votes on one node for a lease that is held, even if the node has not voted for it before.
--
-- ARGV   4 slot
--        5 lease
--        6 token
--        7 owner
--        8 delay
--        9 slots
-- Reply after the common part: for lost, the reason; for renewed, the reason why its holder is to stop (or '')
--      renewed | lost | late | joining, stranger: written, but not counted, because the node may have lost a vote for another lease
--
-- A node that has not voted for the lease may write its row, because the node votes for one lease at a time, and the other votes for this lease have
-- not ended. Why it is atomic: between the check and the vote, the row could be given to another lease.

if is_late() then return {'late', now, 0} end
local slot, lease, token = ARGV[4], num(ARGV[5]), num(ARGV[6])
local tomb = redis.call('GET', TOMBSTONE)
if tomb and token <= (tonumber(tomb) or tonumber(string.match(tomb, '^shut (%d+)$') or '') or token) then return {'lost', now, 0, 'released'} end
local f = redis.call('HMGET', LOCK, 'floor', 'longest', 'permanent', 'r' .. slot, 's' .. slot)
floor = math.max(floor, token_in(LOCK, 'floor', f[1]))
local lock_longest = math.min(number(LOCK, 'longest', f[2], EXACT), DAY + HOUR)
if f[4] == '-' .. id then return {'lost', now, floor, 'released'} end
local row = row_of(f[4], slot)
local own = row and row.id == id
if own and row.token > token then return {'lost', now, floor, 'granted again'} end
if row and not own and row.expiry + row.delay > now then return {'lost', now, floor, 'held by ' .. row.owner} end
set('r' .. slot, text_of({id = id, token = token, expiry = now + lease, lease = lease, delay = num(ARGV[8]),
  state = own and row.token == token and row.state == 'entered' and row.state or '', owner = ARGV[7]}))
if not own then
  floor = math.max(floor, token)
  set('floor', int(floor))
  set('limit', ARGV[9])
end
save(token, lease + num(ARGV[8]), lock_longest, f[3] == '1')
local whose, reason = string.match(f[5] or '', '^([^\n]*)\n([^\n]*)')
return {votes and 'renewed' or m[1] and 'joining' or 'stranger', now, floor, whose == id and reason or ''}
