-- inspect.lua: returns the state of the lock. Before that, runs whose lease has ended become orphans. A replica that starts announces its schedule.
-- On request, the script settles all ticks up to one whose deadline has passed. It also abandons orphans, before a replica records them as
-- abandoned. After that, a withdrawal by the claimant of an orphan does not reopen its tick.
--
-- ARGV   9 schedule         the digest to announce, or ''
--       10 settle_through   settle all ticks up to this one, or ''
--       11 settle_deadline  instant: settle only after it
--       12 follower         the name of the lock that follows this one, or ''; omitted, like all that follow, if not needed
--       13 used             the newest tick whose outcome the follower no longer needs; 0: unknown
--       14 recorded         settled ticks whose outcome was recorded, "tick;..."; omitted, like all that follow, if not needed
--       15 settlement       "outcome\nschedule" of the ticks to settle, which is stored with them, or ''
--       16 abandon          the orphans to abandon, "lease id;..."; omitted, like all that follow, if not needed
--       17 behind           of the announced schedule: see acquire.lua; omitted, with rules, if it is 0 and there are no rules
--       18 rules            a hash of the time zone data from which the schedule's instants are computed, or ''
-- Reply after the common part: state, since, closed, limit, low before the settlement,
--        {slot, expiry, row, ...}, {lease id, "slot\nrow", ...}, and for a follower: ended through, {tick that succeeded, due, ...}; otherwise 0, {};
--        {settled tick, instant, outcome, ...} that no replica has recorded, the tick up to which all ticks are decided,
--        and the instant since which the lock has had these rules; 0 if it has had no others.
--        full: the lock has too many followers for another one
--
-- LOCK  rules: "hash since" of the newest announced schedule
--
-- Why it is atomic: the deadline is compared with the server's clock in the step that moves the ledger.

if is_late() then return reply('late') end
remember()
mend()
local held = holds()
local rules_since = 0
if ARGV[9] ~= '' then
  set_behind(num(ARGV[17] or 0))
  know(ARGV[9], true)
  local known, at = string.match(redis.call('HGET', LOCK, 'rules') or '', '^(%x+) (%d+)$')
  rules_since = known == ARGV[18] and tonumber(at) or known and now or 0
  if (ARGV[18] or '') == '' then rules_since = 0
  elseif known ~= ARGV[18] then set('rules', ARGV[18] .. ' ' .. int(rules_since)) end
end
local of = string.match(ARGV[15] or '', '\n(.*)$')
if of and zone_of(of) ~= zone_of(digest) then know(of, false) end

local before = math.max(low, math.floor(since / 1000000))
local through = tonumber(ARGV[10])
if through and through > before and now > num(ARGV[11]) then
  low = through
  local some = false -- some of these ticks were decided before
  for tick, e in pairs(ledger) do -- a tick that was decided before, and given back, stays open
    some = some or tick <= low and e.state ~= 'open'
    if tick <= low and (e.state ~= 'open' or tick > before) then erase(tick) end
  end
  if not some and zone_of(digest) ~= '' then set('missed', int(before) .. ' ' .. int(through) .. ' ' .. int(now)) end
  advance()
  touch()
  if (ARGV[15] or '') ~= '' then keep_settled(through, int(before) .. '\n' .. ARGV[15]) end
end

for whose in string.gmatch(ARGV[16] or '', '[^;]+') do
  local found = redis.call('HGET', ORPHANS, whose)
  if found then
    local _, _, first, text = unpack_orphan(found, ORPHANS, whose)
    redis.call('HSET', ORPHANS, whose, abandoned(first) .. '\n' .. text)
  end
end

local rows = {}
for i = 1, #held, 2 do
  local row, s = row_at(held[i])
  if row then
    rows[#rows + 1], rows[#rows + 2], rows[#rows + 3] = tonumber(held[i]), held[i + 1], s
  end
end
local settled, unacked, acked, was = {}, {}, {}, settled_list()
for tick in string.gmatch(ARGV[14] or '', '%d+') do acked[tick] = true end
for tick, at, how in string.gmatch(was, '(%d+) (%d+) ([^;]*);') do
  if not acked[tick] then
    unacked[#unacked + 1] = tick .. ' ' .. at .. ' ' .. how .. ';'
    settled[#settled + 1], settled[#settled + 2] = number(LOCK, 'settled', tick, TICK), number(LOCK, 'settled', at, EXACT)
    settled[#settled + 1] = how
  end
end
unacked = table.concat(unacked)
if unacked ~= was then set('settled', unacked) end

local ended_up_to, ended = 0, {}
if (ARGV[12] or '') ~= '' then ended_up_to, ended = follow(ARGV[12], num(ARGV[13])) end
if not ended_up_to then return reply('full') end

-- Returns about MOST_ORPHANS orphans at most. The others follow once these are recorded.
local orphans = {}
if redis.call('HLEN', ORPHANS) > MOST_ORPHANS then orphans = redis.call('HSCAN', ORPHANS, 0, 'COUNT', MOST_ORPHANS)[2]
else orphans = redis.call('HGETALL', ORPHANS) end
for i = 1, #orphans, 2 do unpack_orphan(orphans[i + 1], ORPHANS, orphans[i]) end
return reply('state', since, closed, limit, before, rows, orphans, ended_up_to, ended, settled, math.max(low, math.floor(since / 1000000)), rules_since)
