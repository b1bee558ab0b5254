// Figures and states in plain English.

export const number = (value) => value >= 9_999.5 ? Math.round(value).toLocaleString("en") : String(Math.round(value));

export function rate(value) {
  if (value >= 99.5) return number(value);
  if (value >= 9.95) return value.toFixed(0);
  if (value >= 0.095) return value.toFixed(1);
  return value > 0 ? "<0.1" : "0";
}

// Microseconds as people write them.
export function time(micros) {
  if (!(micros > 0)) return "0";
  if (micros < 9.5) return `${micros.toFixed(1)} µs`;
  if (micros < 950) return `${Math.round(micros)} µs`;
  if (micros < 9_950) return `${(micros / 1e3).toFixed(1)} ms`;
  if (micros < 999_500) return `${Math.round(micros / 1e3)} ms`;
  return seconds(micros / 1e6);
}

export function seconds(value) {
  if (value < 9.95) return `${value.toFixed(1)} s`;
  if (value < 120) return `${Math.round(value)} s`;
  if (value < 7_200) return `${Math.round(value / 60)} min`;
  if (value < 172_800) return `${Math.round(value / 3_600)} h`;
  return `${Math.round(value / 86_400)} days`;
}

export function share(value) {
  if (value >= 0.0995) return `${Math.round(value * 100)} %`;
  return value >= 0.0005 ? `${(value * 100).toFixed(1)} %` : value > 0 ? "<0.1 %" : "0 %";
}

export function bytes(value) {
  if (value >= 1 << 30) return `${(value / 2 ** 30).toFixed(1)} GiB`;
  if (value >= 1 << 20) return `${Math.round(value / 2 ** 20)} MiB`;
  return `${Math.round(value / 1024)} KiB`;
}

export const count = (value, one, many = `${one}s`) => `${number(value)} ${value === 1 ? one : many}`;

const REASONS = {
  queue_full: ["the queue was full", "As many requests waited as queue_max allows."],
  queue_timeout: ["no room came within queue_timeout", "The request waited for as long as one may."],
  deadline: ["a deadline had passed", "The request named a time limit, and waited longer."],
  deadline_unreachable: ["a deadline couldn't be met", "The queue ahead was too long for the request's time limit."],
  queue_delay: ["the queue was slow for too long", "A rule of the laboratory bounds the wait in the queue."],
  target: ["the target would have been missed", "More requests would have made responses slower than target."],
  pinned_max: ["too many sessions keep a connection", "Sessions with temporary tables, LISTEN or locks keep connections; pinned_max bounds them."],
  over_share: ["a class or tenant had more than its share, or is in the background", "One was too many, and others had less than their share."],
};

export const reason = (name) => REASONS[name]?.[0] ?? name.replaceAll("_", " ");
export const reasonMore = (name) => REASONS[name]?.[1] ?? "The gate answered by itself.";

// Why a type is in its lane.
export function laneWhy({ lane, expected, completed }, status) {
  const most = status.long_limit === null ? "" : ` At most ${count(status.long_limit, "long request runs", "long requests run")} at once.`;
  if (lane === "short") return `Expected to take ${time(expected)}, not much more than others. It passes freely.`;
  if (lane === "long") return `Expected to take ${time(expected)}, more than four times the mean of all requests. It uses the long lane.${most}`;
  if (lane === "variable") return `Expected to take ${time(expected)}, but its times vary too much for a limit. It waits among the short ones and leaves the last quarter of the connections to others.`;
  return completed > 0
    ? "Too few requests have ended to know what one takes. Until then it runs one at a time."
    : "Nothing is known of it yet. It runs one at a time until its first requests have ended.";
}

// What a request of this type waits for now.
export function waitsFor(status, lane) {
  if (status.paused.length > 0) return status.paused.includes("*") ? "an operator's pause to end" : `a pause (of ${status.paused.join(", ")})`;
  if (status.upstreams.length > 0 && status.upstreams.every((it) => it.state === "down")) return "the service, which is down";
  if (lane === "unknown") return "its turn: unknown types run one at a time";
  const isLong = lane === "long" || lane === "variable";
  if (isLong && status.long_limit !== null && status.long_in_flight >= status.long_limit) {
    return `room in the long lane (${longLane(status)})`;
  }
  if (status.connections_in_use >= status.connections) {
    const kept = status.connections_pinned > 0 ? `, ${status.connections_pinned} kept by sessions` : "";
    return `a server connection (all ${status.connections} in use${kept})`;
  }
  if (status.capacity_requests !== null && status.in_flight >= status.capacity_requests) {
    return `room: ${count(status.capacity_requests, "request runs", "requests run")} at once`;
  }
  if (status.capacity_seconds !== null && status.load_seconds >= status.capacity_seconds) {
    return `room: ${seconds(status.load_seconds)} of ${seconds(status.capacity_seconds)} work in flight`;
  }
  if (isLong && status.connections_in_use >= status.connections * 0.75) return "a server connection that short requests leave free";
  if (status.pools.length > 1) return "its turn, or a server connection of its user and database";
  return "its turn";
}

// The gate that the address's fragment names; none where it can't be decoded.
export function named(fragment) {
  try { return decodeURIComponent(fragment); } catch { return ""; }
}

// Is it well? A word for its look, a line, and what to know about it.
export function verdict(gate, phase, lost) {
  if (lost) return ["bad", "No room for another viewer", `${lost[0].toUpperCase()}${lost.slice(1)}. The page tries again by itself.`];
  if (lost !== null) return ["bad", "No connection to Gatekeeper", "What you see is old. The page tries again by itself."];
  if (phase === "draining") return ["warn", "Gatekeeper is ending", "It takes no new clients. Open transactions may end."];
  if (!gate) return ["warn", "Gatekeeper is starting", "No gate listens yet."];
  const { status, samples } = gate;
  const last = samples.slice(-10);
  const mean = (of) => last.reduce((sum, it) => sum + of(it), 0) / Math.max(last.length, 1);
  const [served, refused, wait] = [mean((it) => it.served), mean((it) => it.refused), last.at(-1)?.waitP95 ?? 0];
  const down = status.upstreams.filter((it) => it.state === "down");
  const rates = rate(served) === "1.0" || rate(served) === "1" ? "1 request a second is served" : `${rate(served)} requests a second are served`;
  if (down.length > 0 && down.length === status.upstreams.length) {
    const why = down[0].last_error ? ` The last error: ${down[0].last_error}.` : "";
    return ["bad", "The service doesn't answer", `${down[0].address} is down since ${seconds(down[0].since_seconds)}.${why}`];
  }
  if (status.paused.length > 0) {
    const what = status.paused.includes("*") ? "Every request waits" : `Requests for ${status.paused.join(", ")} wait`;
    return ["warn", "Paused", `${what} until somebody resumes. ${count(status.queued, "request waits", "requests wait")} now.`];
  }
  if (status.stalled) return ["bad", "The service has stopped answering", `Nothing has ended for long, and ${count(status.queued, "request waits", "requests wait")}.`];
  if (status.passes_everything) {
    const most = status.passing_max === null ? "at once" : `up to ${number(status.passing_max)} at once`;
    return ["warn", "Emergency: everything passes", `An operator has set bounds, order and targets aside. Requests go ${most} until somebody lets the gate decide again. ${rates}.`];
  }
  const seen = status.mode === "observe";
  if (refused >= 0.05) {
    const why = topReason(last);
    const text = `${rate(refused)} a second ${seen ? "would be refused" : "are refused"}, mostly because ${why}; ${rates}.`;
    return ["bad", seen ? "It would refuse requests" : "It refuses requests", text];
  }
  if (down.length > 0) return ["warn", "Part of the service is down", `${down.map((it) => it.address).join(", ")}. ${rates}.`];
  if (status.lateness?.is_late) return ["warn", "Gatekeeper itself is short of processor time", `Clients wait ${time(status.lateness.delay_seconds * 1e6)} until they are read.`];
  const longest = gate.waiting[0]?.longest_ms ?? 0;
  if (status.queued > 0 && (longest >= 1_000 || wait >= 250_000)) {
    const text = `${count(status.queued, "request waits", "requests wait")}, the longest for ${time(longest * 1e3)}; ${rates}, and none is refused.`;
    return ["warn", seen ? "Requests would wait" : "Busy: requests wait", text];
  }
  const quiet = status.queued > 0 ? `${count(status.queued, "request waits", "requests wait")} for a moment.` : "Nobody waits.";
  if (served < 0.05) return ["good", "Well, and at rest", "No requests come."];
  return ["good", "All is well", `${rates}. ${quiet}`];
}

function topReason(samples) {
  const sums = new Map();
  for (const { reasons } of samples) for (const [name, n] of reasons) sums.set(name, (sums.get(name) ?? 0) + n);
  const top = [...sums].sort((a, b) => b[1] - a[1])[0];
  return top ? reason(top[0]) : "of something that the gate doesn't tell";
}

// How full the long lane is. What turns out long as it runs is in it, too, and nobody is put out of it.
function longLane({ long_in_flight: running, long_limit: most }) {
  return running > most
    ? `${running} run, ${most} may start: others turned out long as they ran, or the limit fell`
    : `${running} of ${most} in use`;
}

// What the controller has found, line by line: a name, a value, a reason.
export function found(status) {
  const lines = [];
  const connections = status.connections_found;
  lines.push(["Connections", `${status.connections_in_use} of ${status.connections} in use`, connections ? foundConnections(connections) : "The number is configured."]);
  const most = status.capacity_requests;
  if (most !== null) lines.push(["Requests at once", String(most), most >= status.connections ? "As many as there are connections: nothing says that fewer complete more." : "Follows what completes most, and rises at once while requests wait."]);
  if (status.capacity_seconds !== null) lines.push(["Work at once", `${seconds(status.load_seconds)} of ${seconds(status.capacity_seconds)}`, "The sum of what the requests in flight are expected to take."]);
  const { cores, parallelism_requests: learned } = status;
  lines.push(worksOn(cores ?? null, learned, status.parallelism_samples));
  if (status.target) lines.push(["Target", target(status.target), foundBound(status.target.present_bound)]);
  if (status.long_limit !== null) lines.push(["Long lane", longLane(status), "So many long requests keep the service busy; more would only delay the short ones."]);
  for (const group of status.groups) {
    lines.push(["Types that contend", `${group.in_flight} of ${group.limit} at once`, `${group.types.join(" · ")}: together they complete more when fewer run. ${count(group.waiting, "request waits", "requests wait")} for that.`]);
  }
  if (status.clients_mixing_waiting > 0) lines.push(["Pools held by long requests", `${status.clients_mixing_waiting} of ${status.clients_mixing}`, "Pooled connections that wait with a long request; then long ones may go first."]);
  return lines;
}

// On how much the service works. What it tells of its cores comes before what was learned: requests that wait
// for locks, disks or others take no core, and as many as want may do that at once.
function worksOn(cores, learned, samples) {
  const name = "The service works on";
  if (cores !== null) return [name, count(cores, "core"), "It has told the gate so."];
  if (learned === null) return [name, "not known yet", "It is learned from how much longer requests take beside others."];
  return [name, `${learned} at once`, `About its processor cores, more where requests wait for locks or disks; learned from ${count(samples, "execution")}.`];
}

function target({ mean_seconds: mean, p95_seconds: p95 }) {
  return [mean && `mean ${time(mean * 1e6)}`, p95 && `95 % below ${time(p95 * 1e6)}`].filter(Boolean).join(", ");
}

const foundBound = (bound) => bound === null
  ? "Nothing is refused for it now."
  : `Where ${count(Math.floor(bound), "request waits or runs", "requests wait or run")}, the next one is refused.`;

function foundConnections(found) {
  return typeof found === "string" ? `Found: ${found}.` : `Found: ${found.why ?? found.reason ?? JSON.stringify(found)}.`;
}

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

// An event of the log as a sentence, and its facts.
export function event({ text, facts, lines }) {
  const known = new Map(facts);
  const get = (name) => known.get(name);
  const gain = get("gain") ? ` ${capital(get("gain"))} is completed so.` : "";
  const cause = get("cause") ? ` ${get("cause")}` : "";
  const sentences = {
    "another capacity: more is completed": () => `Requests at once: ${get("from")} → ${get("to")}.${gain}`,
    "another capacity": () => `Requests at once: ${get("from")} → ${get("to")}, a trial${lines > 1 ? `, the last of ${lines} moves` : ""}.`,
    "another limit of the long lane": () => `Long lane: ${get("from")} → ${get("to")} at once.`,
    "requests were refused": () => `${count(Number(get("count")), "request")} refused: ${reason(get("reason"))}.${cause}`,
    "requests would have been refused": () => `${count(Number(get("count")), "request")} would have been refused: ${reason(get("reason"))}.${cause}`,
    "a type changed its lane": () => `To the ${get("lane")} lane${Number(get("changes")) > 1 ? `, the last of ${get("changes")} changes within a minute` : ""}: ${get("type")}`,
    "types that contend have a bound of their own": () => `Some types contend: ${get("from")} → ${get("to")} of their requests at once.${gain}`,
    "a type that contends": () => `Contends with others: ${get("type")}`,
    "another bound for types that contend": () => `Contending types: ${get("from")} → ${get("to")} at once.`,
    "types don't contend any more: their bound is gone": () => "Types don't contend any more. Their bound is gone.",
    "limits": () => `${get("finds_connections") === "true" ? `${get("connections")} connections until the server is known to have another number` : `At most ${count(Number(get("connections")), "connection")}`}, ${get("queue_max")} waiting requests, ${get("max_clients")} clients; order: ${get("order")}.`,
    "an upstream is up again": () => `${get("upstream")} is up again, after ${seconds(Number(get("down_seconds")))}.`,
    "an upstream is down": () => `${get("upstream")} is down: ${get("reason")}.`,
    "protecting": () => `Protects ${get("upstream")}, listens at ${get("listen")}.`,
  };
  const sentence = sentences[text]?.();
  if (sentence) return [sentence, ""];
  const rest = facts.map(fact).filter(Boolean).join(", ");
  return [capital(text) + (lines > 1 ? ` (${lines} times)` : ""), rest];
}

// A field of the log, for people.
function fact([name, value]) {
  if (value === "false" || value === "None") return "";
  const words = name.replaceAll("_", " ");
  if (value === "true") return words;
  const bare = value.replace(/^Some\((.*)\)$/, "$1");
  if (["reason", "error"].includes(name)) return bare;
  const timed = words.match(/^(.*) (s|seconds)$/);
  return timed ? `${timed[1]} ${seconds(Number(bare))}` : `${words} ${bare}`;
}
