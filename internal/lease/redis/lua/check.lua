-- check.lua: checks values from Redis before they are used, because any program may have written them. It is placed before most scripts.
--
-- Damage is an error that names the key and the field, "CORRUPT field F of key K is V". It concerns only requests for that lock. A number that is
-- valid in itself, but implausible now, is corrected if that breaks no promise: see docs/guarantees.md.

local MINUTE, HOUR, DAY = 60000000, 3600000000, 86400000000
local SLOTS = 1000                  -- the maximum number of slots of a lock
local EXACT = 9007199254740991      -- 2^53 - 1: Lua represents integers up to here exactly
local TICK = 9007199254             -- the last second whose microseconds are exact
local MOST_TEXT = 262144            -- the maximum number of bytes of a list in a field

local function corrupt(key, field, value)
  error('CORRUPT field ' .. field .. ' of key ' .. key .. ' is ' .. string.gsub(string.sub(tostring(value), 1, 60), '[^\32-\126]', '?'), 0)
end

-- Reports whether n is a whole number from 0 to most. NaN is not.
local function sound(n, most) return n and n >= 0 and n <= most and n % 1 == 0 end

-- Returns the number in a field; 0 if there is none.
local function number(key, field, value, most)
  if not value then return 0 end
  local n = tonumber(value)
  if n and n >= 0 and n <= most and n % 1 == 0 then return n end
  corrupt(key, field, value)
end

-- Returns text, the list in a field. It is an error if the list is longer than most or MOST_TEXT bytes, or does not consist of entries. Each entry is
-- matched, because string.gsub copies the whole text for each entry in the in-process server.
local function list(key, field, text, entry, most)
  local left = #text
  if left <= (most or MOST_TEXT) then
    for found in string.gmatch(text, entry) do left = left - #found end
  end
  if left > 0 then corrupt(key, field, text) end
  return text
end

local function int(x) return string.format('%.0f', x) end
local function num(x) return tonumber(x or '0') or 0 end -- for an argument; values read from Redis go through number()

-- The functions below are for state.lua, which describes the formats.

local ATTEMPTS = 1000000
local function unpack_row(s, key, field)
  local r = {}
  r.id, r.owner, r.lease, r.token, r.tick, r.attempt, r.trigger, r.memo = string.match(s or '',
    '^([^\n]*)\n([^\n]*)\n(%d+)\n(%d+)\n(%d*)\n(%d+)\n([^\n]*)\n(.*)$')
  if not (r.id and sound(r.lease + 0, EXACT) and sound(r.token + 0, EXACT) and sound(r.attempt + 0, ATTEMPTS)
    and (r.tick == '' or sound(r.tick + 0, TICK))) then corrupt(key, field, s) end
  return r
end

-- An orphan is "slot\nrow", or "slot reason\nrow".
local function unpack_orphan(s, key, field)
  local first, text = string.match(s, '^([^\n]*)\n(.*)$')
  local slot = string.match(first or '', '^%d+')
  if not slot or not sound(slot + 0, SLOTS - 1) then corrupt(key, field, s) end
  return unpack_row(text, key, field), slot, first, text
end

local STATES = {done = '^[^;\n]*$', part = '^%d+[%d,]*$', open = '^[%d,]*$'} -- by state: the form of the rest of the entry
local function entry_of(tick, prev, state, how) -- nil if it is not an entry
  tick, prev = tonumber(tick), tonumber(prev)
  if sound(tick, TICK) and sound(prev, TICK) and STATES[state] and #how <= MOST_TEXT / 8 and string.find(how, STATES[state]) then
    return tick, {prev = prev, state = state, how = how}
  end
end

-- Returns the text of a pause. A time of change that is more than a day ahead of the clock is replaced by now, because otherwise no later change
-- would ever count. Without a key, a damaged text is not an error, and the result is ''.
local function pause_from(text, now, key)
  local said, from, till = string.match(text, '^(%d+),(%d+),(%d+),[^,;]*,[^,;]*$')
  if not (said and #text <= 2000 and sound(said + 0, EXACT) and sound(from + 0, EXACT) and sound(till + 0, EXACT)) then
    return key and corrupt(key, 'paused', text) or ''
  end
  if said + 0 > now + DAY then return int(now) .. string.sub(text, #said + 1) end
  return text
end
