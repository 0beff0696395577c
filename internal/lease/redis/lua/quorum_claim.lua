-- quorum_claim.lua: one node votes for a row, promises a ballot, or only returns its state.
--
-- ARGV   4 slot            -1: none
--        5 slots
--        6 lease
--        7 delay
--        8 strict          '1': another limit than the stored one is refused
--        9 token           of the row, and the ballot
--       10 promise         '': none, 'row': for the row, 'any': for any holder of the row
--       11 owner
--       12 moves           the rows of this id that move to this slot and get this token: ",token,token," lists their tokens (earlier attempts), "but,token,"
--                       lists the token of the rows that stay (the lease that is held)
--       13 everyone        '1': also if the node does not vote
--       14 shut            lease ids to shut up to this token, a line each
--       15 tombstone_life  of the tombstones of these lease ids
--       16 all             '1': return the rows in any case
-- Reply after the common part: slot, token of the row, limit, ballot, value, {slot, row, ...}, permanent ('1' or '')
--      yes (the row belongs to this id) | promised | seen | held | stale: the floor is not below the token | far: the token is ahead of the clock
--      limit | dead | dropped | late | stranger: there is no marker | joining: it does not vote
--
-- Why it is atomic: between the look at the row, or at the floor, and the vote another claim could come.

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

local promised = false -- to this very request: the same number may have been promised to another
local function stays(row)
  if row.token == token then return true end -- this very attempt, sent twice
  local named = string.find(ARGV[12], ',' .. int(row.token) .. ',', 1, true)
  if string.sub(ARGV[12], 1, 3) == 'but' then return named end
  return not named
end

local function vote()
  if slot < 0 then return 'seen' end
  if ARGV[8] == '1' and limit > 0 and limit ~= num(ARGV[5]) then return 'limit' end
  if mine and stays(rows[mine]) then -- the same request again
    slot = mine
    local row = rows[mine]
    row.expiry = math.max(row.expiry, now + lease)
    set('r' .. mine, text_of(row))
    return 'yes'
  end
  if mine and rows[mine].token > token then return 'stale' end -- a later attempt came first
  local row = rows[slot]
  if row and row.id ~= id and row.expiry + row.delay > now then
    if mine then redis.call('HDEL', LOCK, 'r' .. mine); rows[mine] = nil end
    return 'held'
  end
  if acceptable ~= 'yes' then return acceptable end
  if mine and mine ~= slot then redis.call('HDEL', LOCK, 'r' .. mine); rows[mine] = nil end
  if tomb then redis.call('DEL', TOMBSTONE) end -- it is from an earlier attempt
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
