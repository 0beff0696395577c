-- state.lua: the beginning of every script for one lock.
--
-- KEYS  1 lock     hash (or compact: see acquire_compact.lua). For the lock: floor (the greatest token), longest (the longest lease), closed (no grants
--                  until then), low (all ticks up to it are decided), last and by (the newest decision, and the lease id that made it), digest, since,
--                  digest2, since2 (the two newest schedules; their ticks up to since are decided), limit (the number of slots), permanent, sync
--                  (written so that WAIT covers a write), used (slots from this one on were never used), delay (the time for which a slot stays shut
--                  after an expiry), delayed (the slots that are shut, "slot until;..."), paused (see pause.lua), outcomes and followers (see
--                  chain.lua), behind (the seconds by which a tick's number is behind the instant at which it is due, by the newest claim), from
--                  (low, while low is from another zone, otherwise 0: see leave_zone()), missed (see acquire.lua), rules (see inspect.lua), settled (ticks that
--                  were settled without a run and that no replica has recorded: "tick instant outcome;...", with a tab and behind after the outcome if
--                  behind is not 0, or "tick instant after\noutcome\nschedule;..." for all ticks later than after, up to tick).
--                  For a slot: r<slot> the row, t<slot> the newest token, e<slot> the end of the lease (only a held slot has one), s<slot> the request
--                  to stop (see stop.lua), h<slot> the lease id that has renewed the row, o<slot> the lease id whose work has succeeded (see
--                  mark_succeeded.lua). For a lease id: i<id> its slot, a<id> the orphan that it has adopted
--       2 ledger   hash: the ticks that were decided out of order, or given back. Other ticks up to low are not listed
--       3 orphans  hash: the runs whose lease ended without a release, by lease id: "slot\nrow", or "slot reason\nrow" if the holder was to stop,
--                  or "slot \tok\nrow" if the work had succeeded. "+" after the slot: the row was renewed, so its holder had received the grant.
--                  "!": the run is abandoned (inspect.lua) or handed over, and no withdrawal reopens its tick any more
--       4 tombstone of this request's lease id, if it was released: the verdict
--       5, 6 see queue.lua
-- ARGV   1 id                the lease id
--        2 not_after         the instant after which the script must not run
--        3 idle              the time after which an unused lock expires; 0: never
--        4 floor             the greatest token that the client has observed
--        5 longest           the longest lease that the client has observed
--        6 low               as the client has observed it
--        7 pause_and_ledger  as the client has observed them
--        8 sync              '1': WAIT follows, and the reply counts only if replicas have the writes of the script
--       The other arguments are described in each script.
--
-- Instants are microseconds of the server's clock, lengths are microseconds, and ticks are seconds since 1970. Numbers stay below 2^53, but tostring
-- would write them as 1.79e+15, so they are written with int().
-- All replicas agree on the number of a tick. It is the instant of the tick, or, if replicas may disagree on the instant, its local time less 14 hours,
-- which is never ahead of the instant. low, the ledger, since and since2 are compared with ticks; all other instants are not.
-- A row is "id\nowner\nlease\ntoken\ntick\nattempt\ntrigger\nmemo"; the memo may hold anything.
-- Every reply begins with: verdict, now, floor, longest, low, pause and ledger, number of orphans.

local LOCK, LEDGER, ORPHANS, TOMBSTONE = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]

local MOST = 1000 -- the maximum number of entries of the ledger, because each reply has the ledger
local MOST_ORPHANS = 10000 -- the maximum number of orphans that a script reads

-- save() writes the changed fields of LOCK with one call, because a call costs more than a field.
local changes = {}
local function set(field, value)
  changes[#changes + 1], changes[#changes + 2] = field, value
end

-- Turns a compact lock into a hash: see acquire_compact.lua.
local function expand()
  local was = redis.pcall('GET', LOCK)
  local token, lease, longest, id, owner = string.match(type(was) == 'string' and was or '', '^(%d+) (%d+) (%d+) ?([^\n]*)\n?(.*)$')
  local life = token and redis.call('PTTL', LOCK) or redis.call('HLEN', LOCK) -- HLEN fails if the key is not a lock
  token = int(number(LOCK, 'token', token, EXACT))
  number(LOCK, 'lease', lease, EXACT)
  number(LOCK, 'longest', longest, EXACT)
  redis.call('DEL', LOCK)
  redis.call('HSET', LOCK, 'floor', token, 'longest', longest, 'limit', '1', 'used', '1', 't0', token)
  if lease ~= '0' then
    redis.call('HSET', LOCK, 'i' .. id, '0', 'e0', int(token + lease), 'r0', table.concat({id, owner, lease, token, '', '1', '', ''}, '\n'))
  end
  redis.call('PEXPIRE', LOCK, life)
end

local id = ARGV[1]
local function read()
  return redis.pcall('HMGET', LOCK, 'floor', 'longest', 'closed', 'low', 'last',
    'digest', 'since', 'digest2', 'since2', 'limit', 'i' .. id, 'permanent', 'by', 'delay', 'delayed', 'used', 'e0', 'paused',
    'from', 'behind')
end
local f = read()
if f.err then
  expand()
  f = read()
end
local floor, longest = number(LOCK, 'floor', f[1], EXACT), number(LOCK, 'longest', f[2], EXACT)
local closed, low = number(LOCK, 'closed', f[3], EXACT), number(LOCK, 'low', f[4], TICK)
local last, limit, slot_of_id, permanent, by = f[5] or '', number(LOCK, 'limit', f[10], SLOTS), f[11], f[12] == '1', f[13]
local digest, since, digest2, since2 = f[6] or '', number(LOCK, 'since', f[7], EXACT), f[8] or '', number(LOCK, 'since2', f[9], EXACT)
local delay, delayed = number(LOCK, 'delay', f[14], HOUR), list(LOCK, 'delayed', f[15] or '', '%d+ %d+;')
local used, first_end = number(LOCK, 'used', f[16], SLOTS), f[17]
local paused = f[18] or ''
local from, behind = number(LOCK, 'from', f[19], TICK), number(LOCK, 'behind', f[20], 2 * DAY / 1000000)
local low_shown, begins = low, since -- the stored low, and since of the current schedule
if from > 0 and from == low then low = math.min(low, math.floor(since / 1000000)) end
if slot_of_id then number(LOCK, 'i' .. id, slot_of_id, SLOTS - 1) end

if paused ~= '' then paused = pause_from(paused, now, LOCK) end

-- A floor that is more than a day ahead of the clock, or a lease above the maximum, was never granted. A floor that is less far ahead stays, because
-- tokens must grow even while a wrong clock is being corrected.
if floor > now + DAY then floor = now; set('floor', int(now)) end
if longest > DAY then longest = DAY; set('longest', int(DAY)) end

-- ledger has an entry {prev = previous tick, state, how} by tick. The states are 'part' (granted in the slots in how, open to others), 'done'
-- (decided, with the outcome in how) and 'open' (given back before the run started; open to the slots in how, or to all if how is empty).
local ledger, ledger_size = {}, 0
local function note(tick, entry)
  if not ledger[tick] then ledger_size = ledger_size + 1 end
  ledger[tick] = entry
end
local function erase(tick)
  if not ledger[tick] then return end
  ledger_size, ledger[tick] = ledger_size - 1, nil
  redis.call('HDEL', LEDGER, int(tick))
end
local function keep(tick, entry)
  note(tick, entry)
  redis.call('HSET', LEDGER, int(tick), int(entry.prev) .. ' ' .. entry.state .. ' ' .. entry.how)
end
local function read_entry(field, value)
  local tick, entry = entry_of(field, string.match(value, '^(%d+) (%a+) (.*)$'))
  if not tick then corrupt(LEDGER, field, value) end
  note(tick, entry)
end
-- Every script reads the ledger, because a client forgets its observed ledger after a reply without one.
local entries = redis.call('HLEN', LEDGER)
if entries > 4 * MOST then corrupt(LEDGER, 'number of entries', entries) end
local stored = entries > 0 and redis.call('HGETALL', LEDGER) or {}
for i = 1, #stored, 2 do read_entry(stored[i], stored[i + 1]) end

-- Returns the ledger as one string, for the reply and for the client's observed state: "tick prev state how;...".
local function ledger_text()
  if ledger_size == 0 then return '' end
  local out = {}
  for tick, e in pairs(ledger) do
    out[#out + 1] = int(tick) .. ' ' .. int(e.prev) .. ' ' .. e.state .. ' ' .. e.how
  end
  table.sort(out)
  return table.concat(out, ';')
end

-- Returns the ledger with the pause before it, if the lock ever had one: "!pause;...".
local function shown_text()
  local text = ledger_text()
  if paused == '' then return text end
  return '!' .. paused .. (text ~= '' and ';' or '') .. text
end

-- Returns, in microseconds, the greatest tick whose instant is not in the future.
local function here() return now - behind * 1000000 end

-- Stores low. While the stored low is from the ticks of another zone, since has the newest decided tick instead.
local function keep_low()
  if low >= low_shown then
    low_shown = low
    set('low', int(low))
    if from > 0 then from = 0; set('from', '0') end
  elseif low * 1000000 > begins then
    begins = low * 1000000
    set('since', int(begins))
  end
end

-- Moves low over decided ticks that follow it without a gap, and drops their entries.
local function advance()
  keep_low()
  if ledger_size == 0 then return end
  local moved = true
  while moved do
    moved = false
    for tick, e in pairs(ledger) do
      if e.state == 'done' and tick > low and (e.prev <= low or e.prev * 1000000 <= since) then
        low, moved = tick, true
      end
      if e.state ~= 'open' and tick <= low then erase(tick) end
    end
  end
  local ticks = {}
  for tick, e in pairs(ledger) do
    if e.state == 'open' and tick * 1000000 < here() - DAY then erase(tick) -- such an old tick is not requested any more
    else ticks[#ticks + 1] = tick end
  end
  table.sort(ticks)
  for i = 1, #ticks - MOST do -- the oldest entries, after a gap of undecided ticks
    if ledger[ticks[i]].state ~= 'open' then low = math.max(low, ticks[i]) end
    erase(ticks[i])
  end
  keep_low()
end

local function row_at(slot)
  local s = redis.call('HGET', LOCK, 'r' .. slot)
  if s then return unpack_row(s, LOCK, 'r' .. slot), s end
end

-- The attempt in the row of a waiter with a delay, until the waiter confirms the grant. Before that, no holder works under such a row.
local UNHEARD = '0'

local function set_delay(new)
  if new == delay then return end
  delay = new
  set('delay', int(delay))
end

-- Adds the slots that are shut to the held slots, except the slot in the argument but, which is being given to a holder.
local function shut(held, but)
  local still = {}
  for slot, till in string.gmatch(delayed, '(%d+) (%d+);') do
    number(LOCK, 'delayed', slot, SLOTS - 1)
    till = math.min(tonumber(till), now + delay)
    if till > now and tonumber(slot) ~= tonumber(but) then
      held[#held + 1], held[#held + 2] = slot, till
      still[#still + 1] = slot .. ' ' .. int(till) .. ';'
    end
  end
  delayed = table.concat(still)
  set('delayed', delayed)
end

-- Returns the ends of the leases by slot; false for a free slot.
local function all_ends()
  if used <= 1 then return {first_end} end
  local fields = {}
  for slot = 0, used - 1 do fields[slot + 1] = 'e' .. slot end
  return redis.call('HMGET', LOCK, unpack(fields))
end

local function vacate(slot, whose)
  if tonumber(slot) == 0 then first_end = false end
  redis.call('HDEL', LOCK, 'r' .. slot, 'e' .. slot, 's' .. slot, 'o' .. slot, 'h' .. slot, 'i' .. whose, 'a' .. whose)
end

-- Counts a tick whose run was lost as failed, unless the run is recovered: see chain.lua.
local function spoil(tick)
  local outcomes = tick ~= '' and redis.call('HGET', LOCK, 'outcomes')
  if not outcomes then return end
  if #outcomes > MOST_TEXT / 2 then outcomes = string.match(outcomes, ';(.*)', MOST_TEXT / 4) or '' end -- drops the oldest: they come first
  redis.call('HSET', LOCK, 'outcomes', outcomes .. tick .. ' no;')
end

-- Returns the first line of the orphan that a row becomes: its slot, a mark if it was renewed, and the reason why its holder was to stop, or
-- ENDED_WELL if its work has succeeded. Replicas recover no run with one of the last two.
local ENDED_WELL = '\tok' -- differs from all reasons, because these have no tabs
local function slot_of_orphan(slot, whose)
  local said = redis.call('HMGET', LOCK, 'h' .. slot, 'o' .. slot, 's' .. slot)
  local first = slot .. (said[1] == whose and '+' or '')
  if said[2] == whose then return first .. ' ' .. ENDED_WELL, true end
  local marked, reason = string.match(said[3] or '', '^([^\n]*)\n([^\n]*)')
  if marked ~= whose then return first end
  return first .. ' ' .. reason
end

-- Returns the first line of an orphan whose tick stays decided even if its claimant withdraws: see inspect.lua and release.lua.
local function abandoned(first)
  local slot, rest = string.match(first, '^(%d+)[+!]?(.*)$')
  return slot .. '!' .. rest
end

-- Returns the held slots: {slot, expiry, ...}. It removes the rows whose lease has ended. A run among them becomes an orphan, until its outcome is
-- recorded. A lease that ends later than now + longest was written before the clock was set back. It is shortened, which is safe because its holder
-- relies on less.
local function holds()
  local held, latest, ends = {}, now + longest, all_ends()
  for slot = 0, used - 1 do
    local expiry = tonumber(ends[slot + 1])
    if ends[slot + 1] and not sound(expiry, EXACT) then corrupt(LOCK, 'e' .. slot, ends[slot + 1]) end
    if expiry and expiry <= now then
      local row, s = row_at(slot)
      if row and row.trigger ~= '' then
        local place, ended_well = slot_of_orphan(slot, row.id)
        redis.call('HSET', ORPHANS, row.id, place .. '\n' .. s)
        if not ended_well then spoil(row.tick) end
        if num(ARGV[3]) > 0 and not permanent then redis.call('PEXPIRE', ORPHANS, int(math.max(num(ARGV[3]), 2 * longest) / 1000)) end
      end
      vacate(slot, row and row.id or '')
      if delay > 0 and not (row and row.attempt == UNHEARD) then delayed = delayed .. slot .. ' ' .. int(expiry + delay) .. ';' end
    elseif expiry then
      if expiry > latest + MINUTE then
        expiry = latest
        set('e' .. slot, int(expiry))
      end
      held[#held + 1], held[#held + 2] = slot, expiry
    end
  end
  if delayed ~= '' then shut(held) end
  return held
end

local function pack_row(row)
  return table.concat({row.id, row.owner, row.lease, row.token, row.tick, row.attempt, row.trigger, row.memo}, '\n')
end

local function place(slot, row, expiry)
  set('r' .. slot, pack_row(row))
  set('t' .. slot, row.token)
  set('i' .. row.id, slot)
  set('e' .. slot, int(expiry))
  if tonumber(slot) >= used then
    used = slot + 1
    set('used', int(used))
  end
  if delayed ~= '' then shut({}, slot) end
end

-- Records that the lock was used, so that save() extends its time to live.
local touched = false
local function touch() touched = true end

-- Writes the changes. A permanent lock never expires, whatever other clients request. Other locks expire when they were idle, but not before their
-- leases.
local function save()
  local idle = num(ARGV[3])
  local stays = touched and idle == 0 and not permanent
  if stays then set('permanent', '1') end
  if #changes > 0 then redis.call('HSET', LOCK, unpack(changes)) end
  if stays then
    for i = 1, 3 do redis.call('PERSIST', KEYS[i]) end
  elseif touched and not permanent then
    local life = int(math.max(idle, 2 * longest, longest + delay) / 1000)
    for _, key in ipairs({LOCK, LEDGER, ORPHANS, KEYS[5], KEYS[6]}) do redis.call('PEXPIRE', key, life) end
  end
end

-- Reopens the tick of a run that never started. If a tick with several grants (per_tick > 1) was decided, only the slot of the run is reopened,
-- because the ledger no longer has the other slots of the tick.
local function reopen(tick, slot, previous, per_tick)
  local entry, how, left = ledger[tick], '', {}
  local prev = entry and entry.prev or previous
  if entry and entry.state == 'part' then
    for s in string.gmatch(entry.how, '%d+') do
      if s ~= slot then left[#left + 1] = s end
    end
  elseif per_tick > 1 then
    how = slot
    if entry and entry.state == 'open' then how = entry.how .. ',' .. slot end
  end
  if #left > 0 then keep(tick, {prev = prev, state = 'part', how = table.concat(left, ',')})
  else keep(tick, {prev = prev, state = 'open', how = how}) end
end

-- Takes over the state of a tick from a client, because the server may have lost it. In doubt a tick is decided, and a slot used.
local function recall(tick, entry)
  local e = ledger[tick]
  if e and e.state == 'open' and e.how ~= '' then entry = {prev = e.prev, state = 'done', how = 'granted'} end
  if tick <= low then
    if e and e.state == 'open' then erase(tick) end
  elseif e and e.state == 'part' and entry.state == 'part' then
    keep(tick, {prev = e.prev, state = 'part', how = e.how .. ',' .. entry.how})
  elseif not e or e.state ~= 'done' then
    keep(tick, entry)
  end
end

-- Of the stored and the observed pause, the one that was changed later counts. The end of a pause is a change, too.
local function changed(pause) return num(string.match(pause, '^%d+')) end
local function remember_pause()
  local observed = string.match(ARGV[7], '^!([^;]*)')
  observed = observed and pause_from(observed, now)
  if not observed or changed(observed) <= changed(paused) then return end
  paused = observed
  set('paused', paused)
  touch()
end

-- Takes over the state that the client has observed, if the server knows less and therefore has lost data. It then closes the lock to new grants for
-- the longest lease, so that living holders can restore their rows.
local function remember()
  remember_pause()
  local w_floor, w_longest, w_low = num(ARGV[4]), num(ARGV[5]), num(ARGV[6])
  if not sound(w_low, TICK) or w_low * 1000000 > now + MINUTE then w_low = 0 end -- it was observed while the clock was wrong
  if not sound(w_floor, now + DAY) then w_floor = 0 end
  if not sound(w_longest, DAY) then w_longest = DAY end
  if w_floor <= floor and w_low <= low_shown then return end
  if from > 0 then set('from', '0') end -- since may be lost, and in doubt a tick is decided
  floor, low_shown, longest, from = math.max(floor, w_floor), math.max(low_shown, w_low), math.max(longest, w_longest), 0
  low = low_shown
  local open = {}
  for tick, prev, state, how in string.gmatch(ARGV[7], '(%d+) (%d+) (%a+) ([^;]*)') do
    local t, known = entry_of(tick, prev, state, how)
    local e = ledger[t or '']
    if not t then -- not an entry
    elseif state ~= 'open' then recall(t, known)
    elseif e and e.state == 'open' and e.how == how then open[t] = true
    elseif how ~= '' then recall(t, {prev = known.prev, state = 'done', how = 'granted'}) end
  end
  for tick in pairs(ledger) do -- such a tick was decided for good since then
    if tick <= w_low and not open[tick] then erase(tick) end
  end
  closed = math.max(closed, now + longest)
  set('floor', int(floor))
  set('low', int(low))
  set('longest', int(longest))
  set('closed', int(closed))
  touch()
end

-- Corrects values that are more than a minute ahead of the server's clock, because they were written while it was wrong.
local function mend()
  local bound = now + MINUTE
  if low_shown * 1000000 > bound then
    if from == low_shown and from > 0 then from = math.floor(now / 1000000); set('from', int(from)) end
    low_shown = math.floor(now / 1000000)
    low = math.min(low, low_shown)
    set('low', int(low_shown))
  end
  if since > bound then since = now; begins = now; set('since', int(since)) end
  if since2 > bound then since2 = now; set('since2', int(since2)) end
  if closed > bound + longest then closed = now + longest; set('closed', int(closed)) end
end

-- Forgets the ledger when the schedule moves to another time zone, because the numbers of the ticks of two zones can't be compared. Returns the
-- newest decided tick, in microseconds. It is kept in since2, in case the schedule returns to the old zone. low never shrinks, because clients have
-- observed it.
local function zone_of(schedule) return string.match(schedule, '^(%x+)%.') or '' end
local function leave_zone()
  local most = math.max(low, math.floor(begins / 1000000))
  for tick, e in pairs(ledger) do
    if e.state ~= 'open' then most = math.max(most, tick) end
    erase(tick)
  end
  low_shown = math.max(low_shown, most)
  from = low_shown
  set('low', int(low_shown))
  set('from', int(from))
  redis.call('HDEL', LOCK, 'missed') -- ticks have other numbers in another zone
  return most * 1000000
end

-- Records the schedule of a request. A new schedule begins now, so that an edited schedule never runs ticks of the past. The lock knows the two
-- newest schedules, so that no tick is lost during a rolling update. announced is true for a replica that starts. For such a replica, only the
-- current schedule counts as known.
local function know(schedule, announced)
  if schedule == digest then return end
  local zone, fresh, left = zone_of(schedule), here(), begins
  local moves = digest ~= '' and zone ~= zone_of(digest)
  if schedule == digest2 and not announced then
    if not moves then since = since2; return end
    fresh = since2
  elseif moves and zone == zone_of(digest2) then fresh = math.max(fresh, since2) end
  if digest == '' and low > 0 then fresh = 0 end -- only the state from a client is left, so the ledger alone decides
  if moves then left = leave_zone() end
  digest2, since2, digest, since, begins = digest, left, schedule, fresh, fresh
  if moves then low = math.min(low_shown, math.floor(since / 1000000)) end
  set('digest', digest)
  set('since', int(since))
  set('digest2', digest2)
  set('since2', int(since2))
  touch()
end

local function set_behind(seconds)
  if seconds == behind then return end
  behind = seconds
  set('behind', int(behind))
end

-- WAIT covers only the writes of its own connection. Without a write by this script, it would return at once.
local sync = ARGV[8] == '1'
local function reply(verdict, ...)
  if sync and (#changes > 0 or redis.call('EXISTS', LOCK) == 1) then set('sync', '') end
  save()
  return {verdict, now, floor, longest, low_shown, shown_text(), redis.call('HLEN', ORPHANS), ...}
end
local function is_late() return now > num(ARGV[2]) end

-- Stores the settlement of ticks for later inspections, because the replica that settled them may die before it records them.
local MOST_SETTLED = 100
local function settled_list() return list(LOCK, 'settled', redis.call('HGET', LOCK, 'settled') or '', '%d+ %d+ [^;]*;') end
local function keep_settled(tick, how)
  local kept = {}
  for entry in string.gmatch(settled_list(), '[^;]+;') do kept[#kept + 1] = entry end
  kept[#kept + 1] = int(tick) .. ' ' .. int(now) .. ' ' .. how .. ';'
  redis.call('HSET', LOCK, 'settled', table.concat(kept, '', math.max(1, #kept - MOST_SETTLED + 1)))
end
