-- Asks for one path after the other out of a file, and prints what came of it as one line of JSON.
local paths = {}
local at = 0

function init(args)
    for path in io.lines(args[1]) do
        paths[#paths + 1] = path
    end
    -- Connections share one thread, and each has its own place in time, so nothing has to be random.
    at = #paths
end

function request()
    at = at % #paths + 1
    return wrk.format(nil, paths[at])
end

function done(summary, latency)
    local errors = summary.errors
    io.write(string.format(
        '\nRESULT {"requests":%d,"seconds":%f,"p50_ms":%f,"p99_ms":%f,"max_ms":%f,"refused":%d,"broken":%d,"bytes":%d}\n',
        summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3, latency.max / 1e3,
        errors.status, errors.connect + errors.read + errors.write + errors.timeout, summary.bytes))
end
