-- state.lua: the beginning of every script of one lock.
--
-- KEYS  1 lock     hash (or compact: see acquire_compact.lua): floor, longest, closed, low, last (and by: the lease id that decided it), digest, since, digest2, since2, limit,
--                  permanent, sync (written so that WAIT has something to wait for); r<slot> the row held there, t<slot> the
--                  newest token granted there, e<slot> the instant at which its lease ends (a slot with one is held), s<slot> that its holder is to
--                  stop (see stop.lua), h<slot> the lease id that has renewed its row, o<slot> the lease id whose work has ended well (see
--                  mark_succeeded.lua), used: slots from this one on were never used; i<id> the slot of a lease id, a<id> the orphan that it
--                  adopted; delay: the time for which a slot stays shut after an expiry, delayed: the slots that are shut, as "slot until;...";
--                  paused: see pause.lua; outcomes, followers: see chain.lua; settled: ticks that were settled without a run, and that no replica
--                  has recorded yet, "tick instant outcome;...", with a tab and behind after the outcome if there is one, or
--                  "tick instant after\noutcome\nschedule;..." for all after one and up to the tick;  behind: the seconds by which a tick's number
--                  is behind the instant at which it is due, by the newest claim (0 if it is that instant); from: low as left by the ticks of another
--                  zone: see leave_zone(); missed: see acquire.lua; rules: see inspect.lua
--       2 ledger   hash: ticks decided (or given back) out of turn; ticks up to low are not listed
--       3 orphans  hash: runs whose lease ended without a release, by lease id: "slot\nrow", or "slot reason\nrow" if the holder was to stop,
--                  and "slot \tok\nrow" if its work had ended well. "+" after the slot: the row was renewed, so its holder had received
--                  the grant; "!": it is abandoned (inspect.lua) or handed over, and no withdrawal opens its tick any more
--       4 tombstone of this request's lease id: it was released. It holds the verdict
--       5, 6 see queue.lua
-- ARGV   1 id                of the lease
--        2 not_after         instant after which the script must not run
--        3 idle              time for which an idle lock is kept; 0: for good
--        4 floor             of the client that asks: the greatest token observed
--        5 longest           lease observed
--        6 low               observed
--        7 pause_and_ledger  observed
--        8 sync              '1': WAIT follows, and the reply counts only when replicas have its writes
--       The rest is each script's own.
--
-- Instants are microseconds of the server's clock, lengths microseconds, ticks seconds since 1970. Numbers
-- stay below 2^53, but tostring would print 1.79e+15: they are always written with int().
-- A tick is a number on which all replicas agree: its instant, or, if replicas may disagree on the instant, its local time less 14 hours, which
-- is never ahead of the instant. So low, the ledger, since and since2 are compared with ticks; all other instants are not.
-- A row is "id\nowner\nlease\ntoken\ntick\nattempt\ntrigger\nmemo"; the memo may hold anything.
-- Every reply begins with: verdict, now, floor, longest, low, pause and ledger, number of orphans.

local LOCK, LEDGER, ORPHANS, TOMBSTONE = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]

local MOST = 1000 -- entries of the ledger: each reply carries them
local MOST_ORPHANS = 10000 -- that a script reads

-- Fields of LOCK are written together, by save(): a call costs more than a field.
local changes = {}
local function set(field, value)
  changes[#changes + 1], changes[#changes + 2] = field, value
end

-- A lock that is compact becomes a hash: see acquire_compact.lua.
local function expand()
  local was = redis.pcall('GET', LOCK)
  local token, lease, longest, id, owner = string.match(type(was) == 'string' and was or '', '^(%d+) (%d+) (%d+) ?([^\n]*)\n?(.*)$')
  local life = token and redis.call('PTTL', LOCK) or redis.call('HLEN', LOCK) -- its error shows that it is not a lock
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
local low_told, begins = low, since -- low in the view of clients, and since of the current schedule
if from > 0 and from == low then low = math.min(low, math.floor(since / 1000000)) end
if slot_of_id then number(LOCK, 'i' .. id, slot_of_id, SLOTS - 1) end

if paused ~= '' then paused = pause_from(paused, now, LOCK) end

-- A floor that is ahead of the clock by more than a day, and leases longer than the maximum, were never granted. A floor that is ahead by less stays: tokens
-- must grow even while a wrong clock is being corrected.
if floor > now + DAY then floor = now; set('floor', int(now)) end
if longest > DAY then longest = DAY; set('longest', int(DAY)) end

-- ledger: tick -> {prev = tick before it, state, how}. 'part': granted in the slots in how, and open to others;
-- 'done': decided, with the outcome in how; 'open': given back before its start, open to all slots, or only to the slots in how.
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
-- Every script reads it: after a reply without the ledger, its client would forget the ledger, too.
local entries = redis.call('HLEN', LEDGER)
if entries > 4 * MOST then corrupt(LEDGER, 'number of entries', entries) end
local stored = entries > 0 and redis.call('HGETALL', LEDGER) or {}
for i = 1, #stored, 2 do read_entry(stored[i], stored[i + 1]) end

-- Returns the ledger as one string, for the reply and for the client's observed state: "tick prev state how;...". A pause, if there ever was one, goes before
-- it: "!pause;...".
local function ledger_text()
  if ledger_size == 0 then return '' end
  local out = {}
  for tick, e in pairs(ledger) do
    out[#out + 1] = int(tick) .. ' ' .. int(e.prev) .. ' ' .. e.state .. ' ' .. e.how
  end
  table.sort(out)
  return table.concat(out, ';')
end

local function told_text()
  local text = ledger_text()
  if paused == '' then return text end
  return '!' .. paused .. (text ~= '' and ';' or '') .. text
end

-- Returns the greatest tick whose instant is not in the future.
local function here() return now - behind * 1000000 end

-- While low is from the ticks of another zone, the newest decided tick is in since.
local function keep_low()
  if low >= low_told then
    low_told = low
    set('low', int(low))
    if from > 0 then from = 0; set('from', '0') end
  elseif low * 1000000 > begins then
    begins = low * 1000000
    set('since', int(begins))
  end
end

-- Ticks that follow low without a gap and are decided need no entry of their own.
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
    if e.state == 'open' and tick * 1000000 < here() - DAY then erase(tick) -- so old a tick is never asked for again
    else ticks[#ticks + 1] = tick end
  end
  table.sort(ticks)
  for i = 1, #ticks - MOST do -- behind a gap that stays open
    if ledger[ticks[i]].state ~= 'open' then low = math.max(low, ticks[i]) end
    erase(ticks[i])
  end
  keep_low()
end

local function row_at(slot)
  local s = redis.call('HGET', LOCK, 'r' .. slot)
  if s then return unpack_row(s, LOCK, 'r' .. slot), s end
end

-- The attempt in a row that was granted to a waiter and is not confirmed. If there is a delay, no holder works
-- under such a row.
local UNHEARD = '0'

local function set_delay(new)
  if new == delay then return end
  delay = new
  set('delay', int(delay))
end

-- Adds the slots that are shut to the held ones, except a slot that is given back to its holder.
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

-- A tick whose run was lost did not end well, unless the run is recovered: see chain.lua.
local function spoil(tick)
  local outcomes = tick ~= '' and redis.call('HGET', LOCK, 'outcomes')
  if outcomes then redis.call('HSET', LOCK, 'outcomes', outcomes .. tick .. ' no;') end
end

-- Returns the first line of the orphan that a row becomes: its slot, whether it was renewed, and the reason for which its
-- holder was to stop, if it was, or that its work had ended well. No replica recovers a run with one of the last two.
local ENDED_WELL = '\tok' -- never a reason, because reasons have no tabs
local function slot_of_orphan(slot, whose)
  local said = redis.call('HMGET', LOCK, 'h' .. slot, 'o' .. slot, 's' .. slot)
  local first = slot .. (said[1] == whose and '+' or '')
  if said[2] == whose then return first .. ' ' .. ENDED_WELL, true end
  local marked, reason = string.match(said[3] or '', '^([^\n]*)\n([^\n]*)')
  if marked ~= whose then return first end
  return first .. ' ' .. reason
end

-- Returns the first line of an orphan whose tick stays decided, whatever its claimant requests: see inspect.lua and release.lua.
local function abandoned(first)
  local slot, rest = string.match(first, '^(%d+)[+!]?(.*)$')
  return slot .. '!' .. rest
end

-- Returns the slots that are held: {slot, expiry, ...}. It removes rows whose lease has ended; a run among them becomes
-- an orphan, until its outcome is recorded. No lease lasts longer than the longest from now, whatever the clock
-- showed before: its holder relies on less.
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

-- Records that the lock was used: reply() extends its time to live.
local touched = false
local function touch() touched = true end

-- Writes the changes. Locks of jobs stay, whatever other clients ask for them; other locks expire when they have been idle,
-- but not before their leases.
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

-- Opens the tick of a run that never started. If a fan-out was decided, it opens only the slot of the run, because the other
-- slots of the tick are no longer known.
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

-- Takes over a client's observed state of a tick about which the server may know less. In doubt a tick is decided, and a slot used.
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

-- The later change of the pause counts, whatever else is known. The end of a pause is a change, too.
local function changed(pause) return num(string.match(pause, '^%d+')) end
local function remember_pause()
  local observed = string.match(ARGV[7], '^!([^;]*)')
  observed = observed and pause_from(observed, now)
  if not observed or changed(observed) <= changed(paused) then return end
  paused = observed
  set('paused', paused)
  touch()
end

-- A server that knows less than the client has forgotten: it takes over the state that the client has observed, and
-- closes the lock to new grants for the longest lease, so that living holders can put their rows back.
local function remember()
  remember_pause()
  local w_floor, w_longest, w_low = num(ARGV[4]), num(ARGV[5]), num(ARGV[6])
  if not sound(w_low, TICK) or w_low * 1000000 > now + MINUTE then w_low = 0 end -- the clock was wrong for a while
  if not sound(w_floor, now + DAY) then w_floor = 0 end
  if not sound(w_longest, DAY) then w_longest = DAY end
  if w_floor <= floor and w_low <= low_told then return end
  if from > 0 then set('from', '0') end -- the value of since may be forgotten: in doubt a tick is decided
  floor, low_told, longest, from = math.max(floor, w_floor), math.max(low_told, w_low), math.max(longest, w_longest), 0
  low = low_told
  local open = {}
  for tick, prev, state, how in string.gmatch(ARGV[7], '(%d+) (%d+) (%a+) ([^;]*)') do
    local t, known = entry_of(tick, prev, state, how)
    local e = ledger[t or '']
    if not t then -- not an entry
    elseif state ~= 'open' then recall(t, known)
    elseif e and e.state == 'open' and e.how == how then open[t] = true
    elseif how ~= '' then recall(t, {prev = known.prev, state = 'done', how = 'granted'}) end
  end
  for tick in pairs(ledger) do -- it was decided since, for good
    if tick <= w_low and not open[tick] then erase(tick) end
  end
  closed = math.max(closed, now + longest)
  set('floor', int(floor))
  set('low', int(low))
  set('longest', int(longest))
  set('closed', int(closed))
  touch()
end

-- Corrects values that are ahead of the server's clock by more than a minute: that clock was wrong for a while.
local function mend()
  local bound = now + MINUTE
  if low_told * 1000000 > bound then
    if from == low_told and from > 0 then from = math.floor(now / 1000000); set('from', int(from)) end
    low_told = math.floor(now / 1000000)
    low = math.min(low, low_told)
    set('low', int(low_told))
  end
  if since > bound then since = now; begins = now; set('since', int(since)) end
  if since2 > bound then since2 = now; set('since2', int(since2)) end
  if closed > bound + longest then closed = now + longest; set('closed', int(closed)) end
end

-- Decisions on the ticks of one zone say nothing about the ticks of another: their numbers have no common order. The decided ticks are kept in since2, in
-- case the schedule of the other zone comes back. Clients have observed low, so it does not shrink.
local function zone_of(schedule) return string.match(schedule, '^(%x+)%.') or '' end
local function leave_zone()
  local most = math.max(low, math.floor(begins / 1000000))
  for tick, e in pairs(ledger) do
    if e.state ~= 'open' then most = math.max(most, tick) end
    erase(tick)
  end
  low_told = math.max(low_told, most)
  from = low_told
  set('low', int(low_told))
  set('from', int(from))
  redis.call('HDEL', LOCK, 'missed') -- its ticks have other numbers in another zone
  return most * 1000000
end

-- A schedule that the lock does not know begins now: an edited schedule never fires in retrospect. Two are
-- known at a time, so that a roll-out in which replicas disagree loses no tick of either.
-- announced: by a replica that starts, for which only the current schedule counts as known.
local function know(schedule, announced)
  if schedule == digest then return end
  local zone, fresh, left = zone_of(schedule), here(), begins
  local moves = digest ~= '' and zone ~= zone_of(digest)
  if schedule == digest2 and not announced then
    if not moves then since = since2; return end
    fresh = since2
  elseif moves and zone == zone_of(digest2) then fresh = math.max(fresh, since2) end
  if digest == '' and low > 0 then fresh = 0 end -- only the observed state of a client is left: the ledger itself decides
  if moves then left = leave_zone() end
  digest2, since2, digest, since, begins = digest, left, schedule, fresh, fresh
  if moves then low = math.min(low_told, math.floor(since / 1000000)) end
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

-- WAIT covers only the writes of its own connection: without a write of this script, the reply would count at once.
local sync = ARGV[8] == '1'
local function reply(verdict, ...)
  if sync and (#changes > 0 or redis.call('EXISTS', LOCK) == 1) then set('sync', '') end
  save()
  return {verdict, now, floor, longest, low_told, told_text(), redis.call('HLEN', ORPHANS), ...}
end
local function is_late() return now > num(ARGV[2]) end

-- The settlement of ticks is kept for later inspections: the replica that has settled them may die before
-- it can record them.
local MOST_SETTLED = 100
local function settled_list() return list(LOCK, 'settled', redis.call('HGET', LOCK, 'settled') or '', '%d+ %d+ [^;]*;') end
local function keep_settled(tick, how)
  local kept = {}
  for entry in string.gmatch(settled_list(), '[^;]+;') do kept[#kept + 1] = entry end
  kept[#kept + 1] = int(tick) .. ' ' .. int(now) .. ' ' .. how .. ';'
  redis.call('HSET', LOCK, 'settled', table.concat(kept, '', math.max(1, #kept - MOST_SETTLED + 1)))
end
