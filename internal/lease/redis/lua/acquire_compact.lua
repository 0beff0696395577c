-- acquire_compact.lua: grants locks that are compact and free, each to one request. A compact lock has no other state than its newest token, its
-- holder and the lengths of its leases. It is a string: "token lease longest id\nowner" while it is held, and "token 0 longest" while it is free.
-- release_fast.lua makes a lock compact, and state.lua expands it for all other scripts. This script has no rules of its own: for a lock that is
-- not compact, or not free, the client calls acquire.lua. Only acquire.lua recognizes a repeated request, so a request is sent here only once.
--
-- KEYS  1 lock  2 tombstone of the lease id; then the same for the other requests
-- ARGV   1 not_after  instant; the following arguments are repeated for each request
--        2 floor      as observed by the client
--        3 free       the end of the lock's value while it is free (" 0 longest")
--        4 held       the end of the lock's value while this request holds it (" lease longest id\nowner")
--        5 life       the milliseconds after which the lock expires
-- Reply: now, which is the token of all granted requests; then for each request 1, or 0: use acquire.lua
--
-- Tokens and instants have 16 digits here, so that they can be compared as strings. Parsing them as numbers would take as long as the rest of the
-- script. The token is the instant of the grant, so its lease ends at token + lease.

local clock = redis.call('TIME')
local seconds, micros = clock[1], clock[2]
if #seconds < 10 then seconds = string.sub('000000000' .. seconds, -10) end
if #micros < 6 then micros = string.sub('00000' .. micros, -6) end
local now = seconds .. micros
local in_time, reply = now <= ARGV[1], {now}
for i = 1, #KEYS / 2 do
  local lock, at, granted = KEYS[2 * i - 1], 4 * i - 2, 0
  local was = in_time and redis.pcall('GET', lock) -- an error if the lock is not compact
  if type(was) == 'string' and string.sub(was, 17) == ARGV[at + 1] then
    local token = string.sub(was, 1, 16)
    if token < now and ARGV[at] <= token and redis.call('EXISTS', KEYS[2 * i]) == 0 then
      redis.call('SET', lock, now .. ARGV[at + 2], 'PX', ARGV[at + 3])
      granted = 1
    end
  end
  reply[i + 1] = granted
end
return reply
