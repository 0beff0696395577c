-- inspect.lua: returns the state of the lock. Rows whose lease has ended become orphans first. A replica
-- that starts announces its schedule, and ticks that are past every deadline can be settled together. Orphans can be
-- abandoned before they are recorded as such: from then on no withdrawal of their claimants opens their ticks.
--
-- ARGV   9 schedule         digest to announce, or ''
--       10 settle_through   settle every tick up to this one, or ''
--       11 settle_deadline  instant: not before
--       12 follower         that asks, or ''; left out from here on if not needed
--       13 used             the tick up to which the follower needs no outcome any more; 0: not known
--       14 recorded         settled ticks whose record was written, "tick;..."; left out from here on if not needed
--       15 settlement       "outcome\nschedule" of the ticks that it settles, which is kept then, or ''
--       16 abandon          orphans that are abandoned, "lease id;..."; left out from here on if not needed
--       17 behind           of the schedule that is announced: see acquire.lua; left out from here on if it is 0, and there are no rules
--       18 rules            a hash of the zone data by which the schedule's ticks are due, or ''
-- Reply after the common part: state, since, closed, limit, low before,
--        {slot, expiry, row, ...}, {lease id, "slot\nrow", ...}, and to a follower: ended through, {tick that ended well, due, ...}; to others 0, {};
--        {settled tick, instant, outcome, ...} that no replica has recorded yet, the tick up to which all are decided,
--        and the instant since which the cluster has used the rules, if it has used others before
--
-- LOCK  rules: "hash since", of the schedule that was announced last
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
  local some = false -- some of them were decided before
  for tick, e in pairs(ledger) do -- a tick that was decided before, and given back, is still asked for by itself
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

-- If there are more orphans than a script should return, it returns the first ones. When these are recorded, others come.
local orphans = {}
if redis.call('HLEN', ORPHANS) > MOST_ORPHANS then orphans = redis.call('HSCAN', ORPHANS, 0, 'COUNT', MOST_ORPHANS)[2]
else orphans = redis.call('HGETALL', ORPHANS) end
for i = 1, #orphans, 2 do unpack_orphan(orphans[i + 1], ORPHANS, orphans[i]) end
return reply('state', since, closed, limit, before, rows, orphans, ended_up_to, ended, settled, math.max(low, math.floor(since / 1000000)), rules_since)
