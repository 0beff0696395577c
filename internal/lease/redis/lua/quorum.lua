-- quorum.lua: the beginning of most scripts for a node of a quorum. A node has a data layout of its own, and does not know the other nodes. Its rows
-- are its votes. The client merges the votes of all nodes, and writes the register: the state of the ticks and runs of the lock, which only the
-- client interprets (see package rules). See also docs/decisions/013-quorum.md.
--
-- KEYS  1 member  hash, one for all locks of a prefix: state ('voting', or 'joining' if the node has lost its data, or may have), run (Redis's run
--                 id at that time), epoch and since of that state, base (no floor is below it), top (no accepted token is above it), longest (the
--                 longest lease), founder (the node takes part in the start of a quorum, see quorum_found.lua)
--       2 lock    hash: floor, limit, longest, permanent; r<slot> the row of that slot, or "-id" after quorum_release_fast.lua;
--                 dead: the instant until which there may be tombstones; ballot and value: the register that was accepted last
--       3 tombstone of this request's lease id: 'released' or 'gone': the id is dead. 'shut TOKEN': renewals and claims up to that token are
--                 refused. A token: claims up to it were dropped
--       4 index   set: the locks that have a register (only for scripts that write one)
-- ARGV   1 id         the lease id
--        2 not_after  instant of the node's clock
--        3 idle       0: permanent
--       The other arguments are described in each script.
--
-- Instants are microseconds of the node's own clock, and lengths are microseconds. A row is "id\ntoken\nexpiry\nlease\ndelay\nstate\nowner". Its
-- state is 'tentative' until the run is in the register, and 'entered' afterwards. It is '' if the lease needs no register, or if a renewal restored
-- the row. A row is free when its lease, and the delay after it, have ended. Every reply begins with: verdict, now, floor.

local MEMBER, LOCK, TOMBSTONE, INDEX = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local SECOND = 1000000
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local id = ARGV[1]

local function is_late() return now > num(ARGV[2]) end

local m = redis.call('HMGET', MEMBER, 'state', 'base', 'top', 'longest')
local function token_in(key, field, value) -- a token more than a day ahead of the clock was never granted, and counts as now
  local token = number(key, field, value, EXACT)
  return token <= now + DAY and token or now
end
local votes, floor, top = m[1] == 'voting', token_in(MEMBER, 'base', m[2]), token_in(MEMBER, 'top', m[3])
local longest = math.min(number(MEMBER, 'longest', m[4], EXACT), DAY + HOUR)

local function row_of(s, slot) -- nil if the lease was released
  if not s or string.byte(s) == 45 then return nil end
  local r = {}
  r.id, r.token, r.expiry, r.lease, r.delay, r.state, r.owner = string.match(s,
    '^([^\n]*)\n(%d+)\n(%d+)\n(%d+)\n(%d+)\n(%a*)\n(.*)$')
  if not r.id then corrupt(LOCK, 'r' .. slot, s) end
  local function n(value) return number(LOCK, 'r' .. slot, value, EXACT) end
  r.token, r.expiry, r.lease, r.delay = n(r.token), n(r.expiry), n(r.lease), n(r.delay)
  return r
end
local function text_of(r)
  return table.concat({r.id, int(r.token), int(r.expiry), int(r.lease), int(r.delay), r.state, r.owner}, '\n')
end

local changes = {}
local function set(field, value) changes[#changes + 1], changes[#changes + 2] = field, value end

-- A row that ends later than its lease allows was written before the clock was set back. A living holder renews the shortened row in time.
local function bounded(field, row)
  if row and row.expiry > now + row.lease + MINUTE then
    row.expiry = now + row.lease
    set(field, text_of(row))
  end
  return row
end

-- Writes the changes of set(). token and lease belong to a row that was placed, if any; lease includes the delay. lock_longest is the longest lease of
-- LOCK.
local function save(token, lease, lock_longest, permanent)
  local idle = num(ARGV[3])
  if lease > lock_longest then lock_longest = lease; set('longest', int(lease)) end
  if idle == 0 and not permanent then
    set('permanent', '1')
    redis.call('PERSIST', LOCK)
  end
  if #changes > 0 then redis.call('HSET', LOCK, unpack(changes)) end
  if idle > 0 and not permanent then redis.call('PEXPIRE', LOCK, int(math.max(idle, 2 * lock_longest) / 1000)) end
  if token > top or lease > longest then -- top is a second ahead, so that it is not written for each token
    redis.call('HSET', MEMBER, 'top', int(math.max(top, token + SECOND)), 'longest', int(math.max(longest, lease)))
  end
end
