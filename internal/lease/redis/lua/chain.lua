-- chain.lua: stores the outcomes of ticks for followers, the locks whose ticks depend on them. It is placed between state.lua and the scripts that
-- release and inspect. An outcome is stored until all followers have used it.
--
-- LOCK  outcomes: "tick due;...". due is the instant at which the tick and all earlier ticks had ended; 0 if they have not; "no" if a run of the tick
--       failed. A "no" is dropped once the tick and all earlier ticks have ended.
--       followers: "name used seen;...". used is the newest tick whose outcome the follower no longer needs, and seen the approximate instant of the
--       last request that named it.

-- Returns due by tick; false for "no".
local function read_outcomes()
  local well = {}
  for tick, due in string.gmatch(list(LOCK, 'outcomes', redis.call('HGET', LOCK, 'outcomes') or '', '%d+ %w+;'), '(%d+) (%w+);') do
    well[number(LOCK, 'outcomes', tick, TICK)] = due ~= 'no' and number(LOCK, 'outcomes', due, EXACT)
  end
  return well
end

-- Stores the outcomes after the tick cut, and at most as many as a ledger may have entries.
local function write_outcomes(well, cut)
  local ticks, out = {}, {}
  for tick in pairs(well) do
    if tick > cut then ticks[#ticks + 1] = tick end
  end
  table.sort(ticks)
  for i = math.max(1, #ticks - MOST + 1), #ticks do
    local due = well[ticks[i]]
    out[#out + 1] = int(ticks[i]) .. ' ' .. (due and int(due) or 'no') .. ';'
  end
  set('outcomes', table.concat(out))
end

-- Returns the newest tick up to which all ticks are decided and have neither a held run nor an orphan. While the lock is closed, the held runs are
-- unknown. A tick that was given back more than an hour ago is not requested any more.
local function ended_through()
  if closed > now then return 0 end
  local through = low
  local function before(tick)
    if tick and tick <= through then through = tick - 1 end
  end
  for tick, e in pairs(ledger) do
    if e.state == 'open' and tick * 1000000 > here() - HOUR then before(tick) end
  end
  for slot = 0, used - 1 do
    local row = row_at(slot)
    if row then before(tonumber(row.tick)) end
  end
  if redis.call('HLEN', ORPHANS) > MOST_ORPHANS then return 0 end -- too many to read, so the result is unknown
  for _, orphan in ipairs(redis.call('HVALS', ORPHANS)) do
    before(tonumber(unpack_orphan(orphan, ORPHANS, 'a run').tick))
  end
  return through
end

-- Sets due for ticks that have ended, and drops the failed ones among them.
local function come_due(well)
  local through = ended_through()
  for tick, due in pairs(well) do
    if tick <= through then
      if due == 0 then well[tick] = now
      elseif not due then well[tick] = nil end
    end
  end
  return through
end

-- Records the outcome of a run. A tick with several grants keeps the worst outcome.
local function conclude(tick, ended_well, per_tick)
  local well = read_outcomes()
  if not ended_well then well[tick] = false
  elseif per_tick <= 1 or well[tick] ~= false then well[tick] = 0 end
  come_due(well)
  write_outcomes(well, 0)
end

-- Records the newest tick that a follower has used. Returns the tick up to which all ticks have ended, and the ticks that succeeded and that a
-- follower may still need: {tick, due, ...}. Returns nil, without a change, if the follower is new and the lock has MOST_FOLLOWERS others.
local MOST_FOLLOWERS = 4000
local function follow(name, its_used)
  local count, cut, known = 0, nil, false
  local function entry(who, upto, seen) return who .. ' ' .. int(upto) .. ' ' .. int(seen) .. ';' end
  local were = list(LOCK, 'followers', redis.call('HGET', LOCK, 'followers') or '', '[^ ;]+ %d+ %d+;', 8 * MOST_TEXT)
  local followers = string.gsub(were, '([^ ;]+) (%d+) (%d+);', function(who, upto, seen)
    upto, seen = number(LOCK, 'followers', upto, TICK), number(LOCK, 'followers', seen, EXACT)
    local asks, ahead = who == name, seen > now + MINUTE
    if seen <= now - DAY and not asks then return '' end
    if asks and its_used > 0 then upto = its_used end
    if asks and seen < now - HOUR or ahead then seen = now end
    count, cut, known = count + 1, math.min(cut or upto, upto), known or asks
    if asks or ahead then return entry(who, upto, seen) end -- otherwise the entry stays as it is
  end)
  if not known then
    if count >= MOST_FOLLOWERS then return nil end
    followers, cut = followers .. entry(name, its_used, now), math.min(cut or its_used, its_used)
  end
  set('followers', followers)

  local well, ended = read_outcomes(), {}
  local through = come_due(well)
  write_outcomes(well, cut)
  for tick, due in pairs(well) do
    if due and due > 0 and tick > cut then ended[#ended + 1], ended[#ended + 2] = tick, due end
  end
  return through, ended
end
