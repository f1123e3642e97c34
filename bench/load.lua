-- wrk's script: POST a file over and over, and print what came of it as one line of JSON. Names and
-- values of headers follow the file. A file with @SERIES@ and then @START@ gets a thousand names in
-- turn, and for each a later hour every time.
function init(arguments)
  local file = assert(io.open(arguments[1], "rb"))
  wrk.method = "POST"
  wrk.body = file:read("*a")
  file:close()
  local before, between, after = wrk.body:match("^(.-)@SERIES@(.-)@START@(.*)$")
  if before then
    -- Each run begins where no earlier one has been.
    local number, first = 0, (os.time() % 1000000) * 3600
    request = function()
      number = number + 1
      local hour = os.date("!%Y-%m-%dT%H:00:00", first + math.floor(number / 1000) * 3600)
      return wrk.format(nil, nil, nil, before .. number % 1000 .. between .. hour .. after)
    end
  end
  for at = 2, #arguments, 2 do
    wrk.headers[arguments[at]] = arguments[at + 1]
  end
end

function done(summary, latency, requests)
  local errors = summary.errors
  io.write(string.format(
    '{"requests": %d, "seconds": %.6f, "failed": %d, "p50": %.6f, "p99": %.6f}\n',
    summary.requests, summary.duration / 1e6,
    errors.connect + errors.read + errors.write + errors.status + errors.timeout,
    latency:percentile(50) / 1e6, latency:percentile(99) / 1e6))
end
