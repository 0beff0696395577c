-- stop.lua: asks the holder of a row to stop. It marks the row, so that the reply to the holder's next renewal has the request. It also publishes a
-- message, which the holder gets at once.
--
-- ARGV   9 reason   why the holder is to stop
--       10 channel  to which the message is published
--       11 slots    this and the following are for a request without a lease id, which makes room for a tick if all slots are held: it selects the
--                   oldest run that began before the tick
--       12 tick
--       13 from     the earliest start of the tick
-- Reply after the common part: asked, lease id, owner, slot | gone (there is no such row, or the tick needs no room) | late
--
-- s<slot> of LOCK is the mark: "lease id\nreason\ntick that needs the slot, or ''". It counts only for the lease that it names.
--
-- Why it is atomic: if a slot became free, or the tick was decided, between the check and the mark, a run would be stopped for nothing. And only the
-- first of all requests for a tick may select a run.

if is_late() then return reply('late') end
remember()
mend()
local held = holds()

local function mark(slot, row, reason, tick)
  set('s' .. slot, row.id .. '\n' .. reason .. '\n' .. tick)
  return reply('asked', row.id, row.owner, tonumber(slot))
end
local function tell(row)
  redis.pcall('PUBLISH', ARGV[10], 'stop\t' .. row.id .. '\t' .. ARGV[9] .. '\n') -- the ACL may forbid it
end
local function mark_of(slot, row)
  local whose, reason, tick = string.match(redis.call('HGET', LOCK, 's' .. slot) or '', '^([^\n]*)\n([^\n]*)\n(%d*)$')
  if whose == row.id then return reason, num(tick) end
end

if id ~= '' then
  local row = slot_of_id and row_at(slot_of_id)
  if not row or row.id ~= id then return reply('gone') end
  tell(row)
  local reason, tick = mark_of(slot_of_id, row)
  return mark(slot_of_id, row, reason or ARGV[9], tick and tick > 0 and int(tick) or '') -- keep an earlier reason
end

local tick, from = num(ARGV[12]), num(ARGV[13])
local function decided(t)
  local e = ledger[t]
  return e and e.state == 'done' or t <= low and not (e and e.state == 'open')
end
if decided(tick) or closed > now or #held / 2 < num(ARGV[11]) then return reply('gone') end

-- Reports whether a run began before the tick. Its token is the time of the grant. A token ahead of the clock comes from a wrong clock, and counts as
-- earlier. A recovery began with the run that it recovers.
local function began_before(row)
  local token = num(row.token)
  return num(row.tick) < tick and (token < from or token > now + MINUTE or redis.call('HEXISTS', LOCK, 'a' .. row.id) == 1)
end
local oldest, at, leaving
for i = 1, #held, 2 do
  local slot = held[i]
  local row = row_at(slot)
  local reason, of
  if row then reason, of = mark_of(slot, row) end
  if reason and of == tick then return reply('asked', row.id, row.owner, tonumber(slot)) end
  if reason and decided(of) then leaving = leaving or {slot, row, reason} -- the run is stopping, but not to make room for an undecided tick
  elseif row and not reason and began_before(row) and (not oldest or num(row.token) < num(oldest.token)) then oldest, at = row, slot end
end
if leaving then return mark(leaving[1], leaving[2], leaving[3], int(tick)) end
if not oldest then return reply('gone') end
tell(oldest)
return mark(at, oldest, ARGV[9], int(tick))
