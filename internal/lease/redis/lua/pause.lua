-- pause.lua: sets the lock's pause, or ends it. Ticks of paused time are settled: see stopped() in acquire.lua. Requests without a tick are not.
--
-- LOCK  paused: "changed,from,until,outcome,reason". changed: the instant at which it was last set or ended; the later change counts; until: 0 is for
--       ever; outcome: with which it settles ticks; reason: the client's own, without a comma or semicolon. It stays when it is over, because
--       ticks of that time may be undecided yet, and because a client that missed the end would set it again.
-- ARGV   9 end      '1': end it
--       10 length   0: until it is ended
--       11 outcome  with which it settles ticks
--       12 reason   for people, and after & the user who wants the pause, escaped
-- Reply after the common part: paused, the pause before (or '')
--
-- Why it is atomic: it ends by the server's clock, and only the server knows which pause is
-- newer.

if is_late() then return reply('late') end
remember()
local before = paused
local said, from, till, outcome = string.match(before, '^(%d+),(%d+),(%d+),([^,]*)')
local on = said and (till == '0' or tonumber(till) > now)
if not on then from = said and ARGV[9] == '1' and from or now end
from = tonumber(from)

local reason = ''
if ARGV[9] ~= '1' then
  till, outcome, reason = ARGV[10] == '0' and 0 or now + ARGV[10], ARGV[11], ARGV[12]
elseif on or not said then
  till = math.max(now, from)
end
paused = table.concat({int(math.max(now, num(said) + 1)), int(from), int(tonumber(till)), outcome or '', reason}, ',')
set('paused', paused)
touch()
return reply('paused', before)
