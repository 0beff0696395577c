-- batch.lua: the requests of one script that travel together, as one command: its words are read once, and those that the requests
-- have in common are sent once. one is the script, as a function of the keys and arguments that it has for a single request. Each fares by itself:
-- this is no transaction, and an error of one is the reply to that one.
--
-- KEYS  those of each request, one after the other
-- ARGV   1 how many requests  2 how many arguments each has; then those of the first; then for each of the others: in how many its own differ from
--        them, and the place and the value of each
-- Reply: those of the requests; that of one that failed is 'error', text. (No error among the replies: clients lose count of the replies after one.)
--        A fault that is common to all requests is the reply to each, before anything was done.

local requests, width = tonumber(ARGV[1]), tonumber(ARGV[2])
local keys_each, at = #KEYS / requests, width + 3

local function everybodys(text)
  for _, reason in ipairs({'READONLY', 'OOM', 'NOREPLICAS', 'MASTERDOWN', 'MISCONF'}) do
    if string.find(text, reason, 1, true) then return true end
  end
end

local replies = {}
for i = 1, requests do
  local keys, args = {unpack(KEYS, (i - 1) * keys_each + 1, i * keys_each)}, {unpack(ARGV, 3, width + 2)}
  if i > 1 then
    local last = at + 2 * ARGV[at]
    for place = at + 1, last, 2 do args[ARGV[place] + 0] = ARGV[place + 1] end
    at = last + 1
  end
  local done, got = pcall(one, keys, args)
  if not done then
    local text = type(got) == 'table' and got.err or tostring(got)
    if i == 1 and everybodys(text) then return {err = text} end
    got = {'error', text}
  end
  replies[i] = got
end
return replies
