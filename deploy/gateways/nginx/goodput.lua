-- Notes when an answer's tokens came, how many the server counted, and how it ended.
-- The bytes pass through unchanged.
local TEXTS = {
  '"[%a_]*content": ?"[^"]', '"reasoning": ?"[^"]', '"text": ?"[^"]',
  '"delta": ?"[^"]', '"arguments": ?"[^"]',
}
local ENDS = {
  'data: %[DONE%]', '"type": ?"message_stop"', '"type": ?"response%.completed"',
}
local USAGE = {
  llm_prompt = { '"prompt_tokens": ?(%d+)', '"input_tokens": ?(%d+)' },
  llm_completion = { '"completion_tokens": ?(%d+)', '"output_tokens": ?(%d+)' },
  llm_cached = { '"cached_tokens": ?(%d+)', '"cache_read_input_tokens": ?(%d+)' },
}
local SEAM = 48

local chunk = ngx.arg[1]
if not chunk or chunk == "" then
  return
end
local seen = ngx.ctx.goodput
if not seen then
  seen = { tail = "", events = 0 }
  ngx.ctx.goodput = seen
end
local var = ngx.var
ngx.update_time()
local now = ngx.now() * 1000
-- An event may be cut anywhere: look across the seam too.
local seam = seen.tail .. chunk:sub(1, SEAM)

local function holds(patterns)
  for _, pattern in ipairs(patterns) do
    if chunk:find(pattern) or seam:find(pattern) then
      return true
    end
  end
  return false
end

local streamed =
  (var.upstream_http_content_type or ""):sub(1, 17) == "text/event-stream"
if streamed then
  local found = 0
  for _, text in ipairs(TEXTS) do
    local _, n = chunk:gsub(text, "")
    found = found + n
  end
  if found == 0 and seen.tail ~= "" and holds(TEXTS) then
    found = 1
  end
  if found > 0 then
    if not seen.last then
      var.llm_first = string.format("%.0f", now)
    elseif not seen.gap or now - seen.last > seen.gap then
      seen.gap = now - seen.last
      var.llm_gap = string.format("%.0f", seen.gap)
    end
    seen.last, seen.events = now, seen.events + found
    var.llm_last = string.format("%.0f", now)
    var.llm_events = tostring(seen.events)
  end
  if holds(ENDS) then
    var.llm_done = "1"
  end
  if holds({ '"error": ?{' }) then
    var.llm_error = "1"
  end
end
-- Where an event was cut its numbers may be: they are read with what went before.
local joined = seen.tail .. chunk
for name, patterns in pairs(USAGE) do
  for _, pattern in ipairs(patterns) do
    local number = joined:match(pattern)
    if number then
      var[name] = number
    end
  end
end
if not seen.model then
  seen.model = chunk:match('"model": ?"([^"]+)"')
  if seen.model then
    var.llm_model = seen.model
  end
end
var.llm_end = string.format("%.0f", now)
-- Of a stream only the end of an event that is not whole yet, when its text was not
-- counted.
local rest = chunk
if streamed then
  rest = chunk:match("[^\n]*$")
  for _, text in ipairs(TEXTS) do
    if rest:find(text) then
      rest = ""
    end
  end
end
seen.tail = rest:sub(-SEAM)
