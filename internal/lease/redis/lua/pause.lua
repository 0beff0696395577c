-- pause.lua: sets or ends the pause of the lock. A pause settles ticks: see stopped() in acquire.lua. It does not affect requests without a tick.
--
-- LOCK  paused: "changed,from,until,outcome,reason". changed: the instant of the last change; of two pauses, the one that was changed later counts.
--       until: 0 for a pause without an end. outcome: the outcome of the ticks that it settles. reason: opaque to the scripts, without commas and
--       semicolons. The field stays after the end of the pause, because ticks of that time may still be undecided, and because a client that missed
--       the end would set the pause again.
-- ARGV   9 end      '1': end the pause
--       10 length   0: until a request ends it
--       11 outcome  of the ticks that the pause settles
--       12 reason   for display, escaped; then "&" and the user who asks for the pause, if known
-- Reply after the common part: paused, the pause before (or '')
--
-- Why it is atomic: the pause ends by the server's clock, and only the server knows the order of the changes.

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
