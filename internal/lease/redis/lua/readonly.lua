-- readonly.lua: lets the script after it run for a user who may only read. It keeps the writes of that script in memory, and later reads find them.
--
-- Why: the stored state may need changes before it is returned, such as the end of leases. A user who may only read must get the same state as a
-- user who may write.

local server = redis
local copies = {} -- the written hashes, by key

local function copy(key)
  local hash = copies[key]
  if hash then return hash end
  hash = {}
  if server.call('TYPE', key).ok == 'hash' then
    local flat = server.call('HGETALL', key)
    for i = 1, #flat, 2 do hash[flat[i]] = flat[i + 1] end
  end
  copies[key] = hash
  return hash
end

local function stored(value) -- as the server converts a value to text
  return type(value) == 'number' and string.format('%.17g', value) or value
end

local function nothing() return 0 end

local writes = {
  DEL = function(key) copies[key] = {} return 1 end,
  HSET = function(key, ...)
    local hash, words = copy(key), {...}
    for i = 1, #words, 2 do hash[stored(words[i])] = stored(words[i + 1]) end
    return #words / 2
  end,
  HDEL = function(key, ...)
    local hash = copy(key)
    for _, field in ipairs({...}) do hash[stored(field)] = nil end
    return 1
  end,
  PEXPIRE = nothing, PERSIST = nothing, SADD = nothing, PUBLISH = nothing,
}

local function all(key, fields, values)
  local list = {}
  for field, value in pairs(copies[key]) do
    if fields then list[#list + 1] = field end
    if values then list[#list + 1] = value end
  end
  return list
end

local reads = {
  HGET = function(key, field) return copies[key][stored(field)] or false end,
  HMGET = function(key, ...)
    local list = {}
    for i, field in ipairs({...}) do list[i] = copies[key][stored(field)] or false end
    return list
  end,
  HGETALL = function(key) return all(key, true, true) end,
  HVALS = function(key) return all(key, false, true) end,
  HLEN = function(key) return #all(key, true, false) end,
  HEXISTS = function(key, field) return copies[key][stored(field)] and 1 or 0 end,
  EXISTS = function(key) return next(copies[key]) and 1 or 0 end,
}

local function with(ask)
  return function(name, key, ...)
    local here = writes[name] or copies[key or ''] and reads[name]
    if here then return here(key, ...) end
    if key == nil then return ask(name) end
    return ask(name, key, ...)
  end
end

local redis = {call = with(server.call), pcall = with(server.pcall), error_reply = server.error_reply, status_reply = server.status_reply}
