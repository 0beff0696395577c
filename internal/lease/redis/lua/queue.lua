-- queue.lua: the queue of waiters for a slot, first come, first served. It is placed between state.lua and the scripts that grant and release.
--
-- KEYS  5 queue     sorted set: the lease ids of the waiters, in the order of their arrival
--       6 patience  sorted set: the same ids, by the instant until which each keeps its place
--       Permanent locks have no queue.
-- LOCK  came: the number of waiters so far;  w<id>: "owner\nlease\nslots\ndelay\nchannel" of a waiter, with a "~" after the slots if it accepts any
--       stored number of slots
--
-- A grant by the script of another client is unconfirmed. Its row ends after CONFIRM, unless the holder, which gets a message on its channel, renews
-- the lease or repeats its request.

local QUEUE, PATIENCE = KEYS[5], KEYS[6]
local CONFIRM = 1000000
local AT_ONCE = 100 -- the maximum number of grants of one script, because one HSET writes them all and other clients wait

-- Returns the lowest slot that is not held. fits has true or false for slots that the request may or may not have. Other slots are allowed unless
-- only is set.
local function free_slot(held, slots, fits, only)
  if #held / 2 >= slots then return nil end
  local taken = {}
  for i = 1, #held, 2 do taken[tonumber(held[i])] = true end
  for s = 0, slots - 1 do
    if not taken[s] and (fits[s] or fits[s] == nil and not only) then return s end
  end
end

local line_up, leave_line, serve
if QUEUE then
  function leave_line(waiter)
    if redis.call('ZREM', QUEUE, waiter) == 0 then return end
    redis.call('ZREM', PATIENCE, waiter)
    redis.call('HDEL', LOCK, 'w' .. waiter)
  end

  -- Adds the request to the queue, or extends its patience there. Returns the number of waiters ahead.
  function line_up(owner, lease, slots, any, channel, patience, its_delay)
    if not redis.call('ZSCORE', QUEUE, id) then
      number(LOCK, 'came', redis.call('HGET', LOCK, 'came'), EXACT)
      redis.call('ZADD', QUEUE, redis.call('HINCRBY', LOCK, 'came', 1), id)
      set('w' .. id, owner .. '\n' .. int(lease) .. '\n' .. int(slots) .. any .. '\n' .. int(its_delay) .. '\n' .. channel)
    end
    redis.call('ZADD', PATIENCE, int(now + patience), id)
    touch()
    return redis.call('ZRANK', QUEUE, id)
  end

  local function grant_to(waiter, slot, owner, lease, slots, its_delay, channel)
    leave_line(waiter)
    floor, longest = math.max(floor + 1, now), math.max(longest, num(lease))
    place(slot, {id = waiter, owner = owner, lease = lease, token = int(floor), tick = '', attempt = num(its_delay) > 0 and UNHEARD or '1', trigger = '', memo = ''},
      now + CONFIRM)
    set('floor', int(floor))
    set('longest', int(longest))
    limit = tonumber(slots)
    set('limit', slots)
    set_delay(num(its_delay))
    touch()
    local sharded, name = string.match(channel, '^(s?):(.*)$')
    redis.pcall(sharded == 's' and 'SPUBLISH' or 'PUBLISH', name, -- the ACL may forbid it
      table.concat({waiter, slot, int(floor), int(now + CONFIRM), int(now), int(longest)}, ' '))
  end

  -- Grants free slots to the waiters in their order, and drops waiters whose patience is over. The queue has the number of slots that each waiter has
  -- requested the lock with. It may differ from the stored number only after the lock was forgotten and used again. own is the lease id of this
  -- script's request, which is not granted here. Returns true if other waiters are ahead of it.
  function serve(held, own)
    if redis.call('EXISTS', QUEUE) == 0 then return end
    for _, gone in ipairs(redis.call('ZRANGEBYSCORE', PATIENCE, '-inf', int(now), 'LIMIT', 0, AT_ONCE)) do
      if gone ~= own then leave_line(gone) end
    end
    for _, never in ipairs(redis.call('ZRANGEBYSCORE', PATIENCE, int(now + HOUR), '+inf', 'LIMIT', 0, AT_ONCE)) do leave_line(never) end
    for _ = 1, AT_ONCE do
      local head = redis.call('ZRANGE', QUEUE, 0, 0)[1]
      if not head or head == own then return end
      local owner, lease, slots, any, its_delay, channel =
        string.match(redis.call('HGET', LOCK, 'w' .. head) or '', '^([^\n]*)\n(%d+)\n(%d+)(~?)\n(%d+)\n(.*)$')
      if owner and not (sound(lease + 0, DAY) and slots + 0 >= 1 and slots + 0 <= SLOTS and sound(its_delay + 0, HOUR)) then owner = nil end
      if owner and any == '' and limit > 0 and limit ~= tonumber(slots) then owner = nil end -- drop it: its next request gets the reply limit
      local slot = owner and free_slot(held, tonumber(slots), {})
      if slot then
        grant_to(head, slot, owner, lease, slots, its_delay, channel)
        held[#held + 1], held[#held + 2] = slot, now + CONFIRM
      elseif owner then return
      else leave_line(head) end
    end
    local head = redis.call('ZRANGE', QUEUE, 0, 0)[1]
    return head and head ~= own
  end
end
