-- acquire.lua: grants a slot of the lock, or returns the reason for a refusal.
--
-- ARGV   9 owner         the name of the client, for display
--       10 slots         the number of slots of the lock
--       11 lease         the length of the lease
--       12 trigger       of the run; '': the lease leaves no orphan
--       13 memo          stored with the run
--       14 abstain       '1': decide the tick, but grant nothing
--       15 orphan        the lease id of the orphan that this run adopts, or ''
--       16 strict        '1': refuse if another number of slots is stored
--       17 tick          or ''; omitted, like all that follow, if the request has neither tick, channel nor delay
--       18 previous      the previous tick of the schedule
--       19 not_before    instant
--       20 deadline      instant; 0: none
--       21 per_tick      the maximum number of grants of the tick
--       22 schedule      digest
--       23 if_held       the outcome of the tick if all slots are held; '': the tick stays open
--       24 if_late       the outcome of the tick past the deadline
--       25 channel       to which a grant is published; '': the request does not wait. Omitted, like all that follow, if not needed
--       26 patience      the time for which a waiter keeps its place without another request
--       27 delay         the time for which the slot stays shut after its lease has expired
--       28 keep_first    '1': the oldest undecided tick stays open in spite of if_held. Omitted, like all that follow, if not needed
--       29 keep_outcome  '1': if this request settles the tick, store the settlement until a replica has recorded it
--       30 behind        the seconds by which the tick's number is behind its instant; omitted if 0
-- Reply after the common part:
--       granted, slot, token, expiry, tick, attempt | late | dead | early, instant | closed, until | unheard
--       settled, outcome (by this request)          | decided, outcome, until, holder  | held, until, holder
--       queued, until, holder, number of waiters ahead | limit, stored number
--
-- LOCK  missed: "after through at": the ticks later than after, up to through, were settled as too late at the instant at. With the time zone data of
--       another replica, such a tick may be due only after that instant. In that case it is reopened for that replica.
--
-- Why it is atomic: with a lock but no ledger, a replica whose clock is late would run a job again that has already ended. With a ledger but no lock,
-- the replica that runs the job would be unknown. The order of the checks is part of the protocol.

if is_late() then return reply('late') end
if redis.call('EXISTS', TOMBSTONE) == 1 then return reply('dead') end

local ASKS_AGAIN = 10000000 -- longer than the pause between two requests of any client
local owner, slots, lease = ARGV[9], num(ARGV[10]), num(ARGV[11])
local tick, previous, per_tick = tonumber(ARGV[17]), num(ARGV[18]), num(ARGV[21])
local channel, patience = ARGV[25] or '', num(ARGV[26])
local waits = QUEUE and channel ~= ''

local mine = slot_of_id and row_at(slot_of_id)
local expiry = mine and number(LOCK, 'e' .. slot_of_id, redis.call('HGET', LOCK, 'e' .. slot_of_id), EXACT) or 0
if expiry > now + longest + MINUTE then -- written before the clock was set back: see holds()
  expiry = now + longest
  set('e' .. slot_of_id, int(expiry))
end
if expiry > now then -- a repeated request, whose first reply was lost, gets the same grant
  if sync then -- replicas may not have acknowledged the grant: it must last until the client asks again
    expiry = math.max(expiry, now + math.max(lease, ASKS_AGAIN))
    set('e' .. slot_of_id, int(expiry))
    touch()
  elseif waits then -- the request confirms a grant that the script of another client made
    expiry = math.max(expiry, now + lease)
    mine.attempt = int(math.max(num(mine.attempt), 1))
    place(tonumber(slot_of_id), mine, expiry)
    touch()
  end
  return reply('granted', tonumber(slot_of_id), tonumber(mine.token), expiry, num(mine.tick), num(mine.attempt))
end
if tick then set_behind(num(ARGV[30])) end
local not_before = math.max(num(ARGV[19]), (tick or 0) * 1000000)
if not_before > now then
  if tick and ARGV[22] ~= digest and ARGV[22] ~= digest2 then -- announce the schedule now: a schedule announced at its tick would begin after the tick
    remember()
    mend()
    know(ARGV[22], false)
  end
  return reply('early', not_before)
end

remember()
mend()
local held = holds()
local any = ARGV[16] == '1' and '' or '~'
local function other_limit() return any == '' and limit > 0 and limit ~= slots end
if other_limit() then return reply('limit', limit) end
if closed > now then
  if waits then line_up(owner, lease, slots, any, channel, patience, num(ARGV[27])) end
  return reply('closed', closed)
end
local crowd = QUEUE and serve(held, id)
if other_limit() then return reply('limit', limit) end -- serve() may have stored the number of a waiter

-- Returns the end of the lease and the owner of the row whose lease ends first. With a tick as the argument, it considers only rows of that tick. A
-- slot that is shut has no owner.
local function holder(of)
  local till, owner = 0, ''
  for i = 1, #held, 2 do
    if till == 0 or held[i + 1] < till then
      local row = row_at(held[i])
      if not of or row and row.tick == int(of) then till, owner = held[i + 1], row and row.owner or '' end
    end
  end
  return till, owner
end

-- A lease was granted under this id, and ended before its claimant got the reply, so the run never began. The claimant withdraws the id for good
-- (release.lua) and asks again with a new id. The withdrawal may still be under way, and must not find a run with this id.
local unheard = ARGV[15] == '' and redis.call('HGET', ORPHANS, id)
if unheard and num(unpack_orphan(unheard, ORPHANS, id).attempt) == 1 then return reply('unheard') end

local entry
local function decide(how) -- makes the outcome of the tick final
  if tick > low and (previous <= low or previous * 1000000 <= since) then low = tick
  elseif tick > low then keep(tick, {prev = previous, state = 'done', how = how}) end
  if tick <= low then erase(tick) end
  advance()
  set('last', int(tick) .. ' ' .. how)
  set('by', id)
  touch()
end
-- Returns the outcome with which the pause settles the tick, or nil. The pause settles each tick that is due within it, even if the request comes
-- later. While it is on, it also settles other ticks, unless they were too late before it began.
local function stopped(deadline)
  local from, till, outcome = string.match(paused, '^%d+,(%d+),(%d+),([^,]+)') -- no match without an outcome: a request has ended a pause that the lock never had
  if not from then return end
  from, till = tonumber(from), till == '0' and math.huge or tonumber(till)
  local at = (tick + behind) * 1000000
  local within = at >= from and at < till
  if within or now < till and (deadline == 0 or deadline >= math.min(from, now)) then return outcome end
end
local function began() return entry and entry.how ~= '' end -- a grant of the tick was not given back
-- Reports whether the tick was settled as too late at an instant at which it was not yet due by the time zone data of this replica. In that case it
-- reopens the tick.
local function missed_before_due()
  local after, through, at = string.match(redis.call('HGET', LOCK, 'missed') or '', '^(%d+) (%d+) (%d+)$')
  if not after or tick <= tonumber(after) or tick > tonumber(through) or not_before <= tonumber(at) then return end
  redis.call('HDEL', LOCK, 'missed')
  keep(tick, {prev = previous, state = 'open', how = ''})
  touch()
  return true
end
local function settle(outcome)
  if began() then -- the tick ran, although fewer than per_tick times, so its outcome is granted
    decide('granted')
    return reply('decided', 'granted', holder(tick))
  end
  decide(outcome)
  if ARGV[29] == '1' then keep_settled(tick, behind > 0 and outcome .. '\t' .. int(behind) or outcome) end
  return reply('settled', outcome)
end

if tick then
  know(ARGV[22], false)
  entry = ledger[tick]
  local open = entry and entry.state == 'open'
  local over = (tick <= low and not open) or tick * 1000000 <= since or (entry and entry.state == 'done')
  if over and zone_of(ARGV[22]) ~= '' and not (entry and entry.state == 'part') and missed_before_due() then entry, over = ledger[tick], false end
  if over then
    local newest, how = string.match(last, '^(%d+) (.*)$')
    if tonumber(newest) ~= tick then how, by = '', nil end
    if entry then how = ({done = entry.how, part = 'granted', open = ''})[entry.state] end
    if by == id and how ~= 'granted' then return reply('settled', how) end -- a repeated request, whose first reply was lost
    return reply('decided', how, holder(tick))
  end
  local deadline = num(ARGV[20])
  local outcome = paused ~= '' and stopped(deadline)
  if outcome then return settle(outcome) end
  if deadline > 0 and now > deadline then
    if zone_of(ARGV[22]) ~= '' and not began() then set('missed', int(tick - 1) .. ' ' .. int(tick) .. ' ' .. int(now)) end
    return settle(ARGV[24])
  end
end

local fits = {} -- by slot: false if the tick has used it, true if the tick is open only to such slots
local grants, back = 0, began() and entry.state == 'open'
if began() then
  for s in string.gmatch(entry.how, '%d+') do
    grants = grants + (fits[tonumber(s)] == nil and 1 or 0)
    fits[tonumber(s)] = back
  end
  if not back and grants >= per_tick then return settle('') end -- an earlier request had a greater per_tick
end
local slot = not crowd and free_slot(held, slots, fits, back)
if not slot then
  if waits then
    local ahead = line_up(owner, lease, slots, any, channel, patience, num(ARGV[27]))
    local till, whose = holder()
    return reply('queued', till, whose, ahead)
  end
  local keeps = ARGV[28] == '1' and (previous <= low or previous * 1000000 <= since)
  if tick and not crowd and not began() and ARGV[23] ~= '' and not keeps then return settle(ARGV[23]) end
  return reply('held', holder())
end
if ARGV[14] == '1' then return reply('held', 0, '') end
if waits then leave_line(id) end

local attempt, of_tick, memo = 1, ARGV[17] or '', ARGV[13]
if ARGV[15] ~= '' then -- the run takes over the orphan's tick, with the next attempt; the ledger does not matter
  local found = redis.call('HGET', ORPHANS, ARGV[15])
  if not found then return reply('decided', 'adopted', 0, '') end
  local row = unpack_orphan(found, ORPHANS, ARGV[15])
  attempt, of_tick = num(row.attempt) + 1, row.tick
  if memo == '' then memo = row.memo end
  redis.call('HDEL', ORPHANS, ARGV[15])
  set('a' .. id, ARGV[15] .. '\n' .. found) -- restored if the grant is undone
end

floor, longest = math.max(floor + 1, now), math.max(longest, lease)
place(slot, {id = id, owner = owner, lease = int(lease), token = int(floor), tick = of_tick,
  attempt = int(attempt), trigger = ARGV[12], memo = memo}, now + lease)
set('floor', int(floor))
set('longest', int(longest))
limit = slots
set('limit', int(slots))
set_delay(num(ARGV[27]))
if tick and back then
  fits[slot] = nil
  local left = {}
  for s in pairs(fits) do left[#left + 1] = s end
  if #left == 0 then decide('granted')
  else keep(tick, {prev = previous, state = 'open', how = table.concat(left, ',')}) end
elseif tick and grants + 1 >= per_tick then decide('granted')
elseif tick then
  keep(tick, {prev = previous, state = 'part', how = (began() and entry.how .. ',' or '') .. slot})
  advance()
end
touch()
local token = floor
if QUEUE then -- other slots may be free for waiters
  held[#held + 1], held[#held + 2] = slot, now + lease
  serve(held)
end
return reply('granted', slot, token, now + lease, num(of_tick), attempt)
