-- look.lua: what the lock knows. Rows whose lease has ended become orphans first; a replica that starts
-- announces its schedule, and ticks that are past every deadline can be settled together.
--
-- ARGV   9 schedule digest to announce (or '')  10 settle every tick up to this one (or '')  11 their deadline
--       12 a follower by which it is asked, left out without one  13 the tick up to which that needs no outcome any more (0: not known)
-- Reply after the common part: state, since, closed, limit, low before,
--        {slot, expiry, row, ...}, {lease id, "slot\nrow", ...}, and to a follower: ended through, {tick that ended well, due, ...}
--
-- Why it is atomic: the deadline is compared with the server's clock in the step that moves the ledger.

if is_late() then return reply('late') end
remember()
mend()
local held = holds()
if ARGV[9] ~= '' then know(ARGV[9], true) end

local before = math.max(low, math.floor(since / 1000000))
local through = tonumber(ARGV[10])
if through and through > before and now > num(ARGV[11]) then
  low = through
  for tick, e in pairs(ledger) do -- one that was decided before, and given back, is still asked for by itself
    if tick <= low and (e.state ~= 'open' or tick > before) then erase(tick) end
  end
  advance()
  touch()
end

local rows = {}
for i = 1, #held, 2 do
  local row, s = row_at(held[i])
  if row then
    rows[#rows + 1], rows[#rows + 2], rows[#rows + 3] = tonumber(held[i]), held[i + 1], s
  end
end
if ARGV[12] then
  local through, ended = follow(ARGV[12], num(ARGV[13]))
  return reply('state', since, closed, limit, before, rows, redis.call('HGETALL', ORPHANS), through, ended)
end
return reply('state', since, closed, limit, before, rows, redis.call('HGETALL', ORPHANS))
