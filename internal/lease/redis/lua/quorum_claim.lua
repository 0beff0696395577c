-- quorum_claim.lua: votes for a row on one node, promises a ballot, or only returns the state of the node.
--
-- ARGV   4 slot            -1: none
--        5 slots
--        6 lease
--        7 delay
--        8 strict          '1': refuse if another number of slots is stored
--        9 token           the token of the row, and the ballot
--       10 promise         '': none, 'row': if the node votes for the row, 'any': without a row
--       11 owner
--       12 moves           the rows of this id that move to this slot and get this token. ",token,token," lists the tokens of rows that move (earlier
--                          tries). "but,token," has the token of the rows that stay (the lease that is held)
--       13 everyone        '1': answer even if the node does not vote
--       14 shut            lease ids, one per line. If the node has no live row of such an id, it refuses renewals and claims of the id up to this
--                          token from now on
--       15 tombstone_life  of the tombstones of these lease ids
--       16 all             '1': always return the rows
-- Reply after the common part: slot, token of the row, limit, ballot, value, {slot, row, ...}, permanent ('1' or '')
--      yes: the row belongs to this id | promised | seen | held | stale: the token is not above the floor | far: the token is ahead of the clock
--      limit | dead | dropped | late | stranger: the node has no marker | joining: the node does not vote
--
-- Why it is atomic: another claim could arrive after the row and the floor were read, and before the vote.

if is_late() then return {'late', now, 0} end
if not m[1] then return {'stranger', now, 0} end
if not votes and ARGV[13] ~= '1' then return {'joining', now, 0} end
local slot, lease, delay, token = num(ARGV[4]), num(ARGV[6]), num(ARGV[7]), num(ARGV[9])
local tomb = slot >= 0 and redis.call('GET', TOMBSTONE)
if tomb then
  local up_to = tonumber(tomb) or tonumber(string.match(tomb, '^shut (%d+)$') or '')
  if not up_to then return {'dead', now, 0} end
  if token <= up_to then return {'dropped', now, 0} end
end

local limit, lock_longest, permanent, ballot, value, rows, mine = 0, 0, false, 0, '', {}, nil
local list = {}
local fields = redis.call('HLEN', LOCK)
if fields > 4 * SLOTS then corrupt(LOCK, 'number of fields', fields) end
local f = redis.call('HGETALL', LOCK)
for i = 1, #f, 2 do
  local field, v = f[i], f[i + 1]
  local of = string.match(field, '^r(%d+)$')
  if of then
    of = number(LOCK, field, of, SLOTS - 1)
    local row = bounded(field, row_of(v, of))
    rows[of] = row
    if row then list[#list + 1], list[#list + 2] = of, text_of(row)
    elseif v == '-' .. id and slot >= 0 then return {'dead', now, 0} end
    if row and row.id == id and row.expiry > now then mine = of end
  elseif field == 'floor' then floor = math.max(floor, token_in(LOCK, field, v))
  elseif field == 'limit' then limit = number(LOCK, field, v, SLOTS)
  elseif field == 'longest' then lock_longest = math.min(number(LOCK, field, v, EXACT), DAY + HOUR)
  elseif field == 'permanent' then permanent = true
  elseif field == 'ballot' then ballot = number(LOCK, field, v, EXACT)
  elseif field == 'value' then value = v end
end

local acceptable = token > floor and 'yes' or 'stale'
if token - math.max(now, floor) > MINUTE then acceptable = 'far' end

local promised = false -- this request has raised the floor to its token; otherwise the same token may be promised to another claim
local function stays(row)
  if row.token == token then return true end -- the same try, sent twice
  local named = string.find(ARGV[12], ',' .. int(row.token) .. ',', 1, true)
  if string.sub(ARGV[12], 1, 3) == 'but' then return named end
  return not named
end

local function vote()
  if slot < 0 then return 'seen' end
  if ARGV[8] == '1' and limit > 0 and limit ~= num(ARGV[5]) then return 'limit' end
  if mine and stays(rows[mine]) then -- a repeated request
    slot = mine
    local row = rows[mine]
    row.expiry = math.max(row.expiry, now + lease)
    set('r' .. mine, text_of(row))
    return 'yes'
  end
  if mine and rows[mine].token > token then return 'stale' end -- a later try arrived first
  local row = rows[slot]
  if row and row.id ~= id and row.expiry + row.delay > now then
    if mine then redis.call('HDEL', LOCK, 'r' .. mine); rows[mine] = nil end
    return 'held'
  end
  if acceptable ~= 'yes' then return acceptable end
  if mine and mine ~= slot then redis.call('HDEL', LOCK, 'r' .. mine); rows[mine] = nil end
  if tomb then redis.call('DEL', TOMBSTONE) end -- it is from an earlier try
  rows[slot] = {id = id, token = token, expiry = now + lease, lease = lease, delay = delay,
    state = ARGV[10] == 'row' and 'tentative' or '', owner = ARGV[11]}
  set('r' .. slot, text_of(rows[slot]))
  set('limit', ARGV[5])
  floor, promised = token, true
  set('floor', int(floor))
  return 'yes'
end

local verdict = vote()
if ARGV[10] == 'any' or ARGV[10] == 'row' and verdict == 'yes' and not promised then
  if acceptable == 'yes' then
    floor = token
    set('floor', int(floor))
    if ARGV[10] == 'any' then verdict = 'promised' end
  else verdict = acceptable end
end
for dead in string.gmatch(ARGV[14], '[^\n]+') do
  local alive = false
  for _, row in pairs(rows) do alive = alive or row.id == dead and row.expiry > now end
  local key = string.sub(TOMBSTONE, 1, #TOMBSTONE - #id) .. dead
  local known = redis.call('GET', key)
  if not alive and (not known or tonumber(known) or string.sub(known, 1, 4) == 'shut') then redis.call('SET', key, 'shut ' .. int(token), 'PX', int(num(ARGV[15]) / 1000)) end
end
if #changes > 0 then
  local placed = verdict == 'yes'
  save(floor, placed and lease + delay or 0, lock_longest, permanent)
end
local row = rows[slot]
if verdict == 'yes' and ARGV[16] ~= '1' then return {verdict, now, floor, slot, row.token} end
return {verdict, now, floor, slot, row and row.token or 0, limit, ballot, value, list, permanent and '1' or ''}
