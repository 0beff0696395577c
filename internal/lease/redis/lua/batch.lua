-- batch.lua: executes several requests of one script in one command, so that the command is parsed only once, and arguments that the requests have
-- in common are sent only once. one is the script as a function of the keys and arguments of a single request. The requests are independent: the
-- batch is no transaction, and an error of one request is the reply to that request.
--
-- KEYS  the keys of each request, one request after the other
-- ARGV   1 number of requests  2 number of arguments of each; then the arguments of the first; then for each of the others: the number of
--        arguments that differ from the first, and the index and the value of each
-- Reply: the replies of the requests. The reply of a failed request is 'error', text. (With an error value among the replies, clients would lose
--        count of the replies after it.) If the first request fails for a reason that holds for all, such as READONLY, the command fails.

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
