// What the page knows: the gates, their samples and types, made from the frames of the stream.

const SAMPLES_MAX = 600;
const EVENTS_MAX = 200;
// Figures of a type are told of the last minute. Points lie at least this far apart, in seconds.
const STEP = 5;
const POINTS_MAX = 14;
// Types that somebody looks at, and those with most work, have a longer past.
const LONG_STEP = 10;
const LONG_MAX = 60;
const LONG_TYPES = 300;

export const world = { hello: null, phase: "", uptime: 0, memory: null, gates: new Map(), events: new Map(), at: 0 };

function sample([at, served, refused, left, times, queued, inFlight, bound, reasons]) {
  const [waitMean, waitP95, timeMean, timeP95] = times;
  return { at, served, refused, left, waitMean, waitP95, timeMean, timeP95, queued, inFlight, bound, reasons };
}

// A type's figures since the start, all times in microseconds.
function figures([, , lane, [expected, work], [completed, failed, refused, left], up, wait]) {
  return {
    lane, expected, work, completed, failed, refused, left,
    times: up[0], timeSum: up[1], timeP50: up[2], timeP95: up[3],
    waits: wait[0], waitSum: wait[1], waitP50: wait[2], waitP95: wait[3],
  };
}

const point = (at, f) => [at, f.completed, f.refused, f.work, f.times, f.timeSum, f.waits, f.waitSum];

function takeType(gate, row, at) {
  const [id, label] = row;
  let type = gate.types.get(id);
  if (!type) {
    type = { id, label: label ?? id, points: [], long: [] };
  } else {
    gate.types.delete(id);
    if (label !== null) type.label = label;
  }
  // The last used is the last of the map, as it is the first of the gatekeeper's own list.
  gate.types.set(id, type);
  const before = type.now;
  type.now = figures(row);
  if (!before || type.now.completed < before.completed) {
    type.points = [point(at, type.now)];
    type.long = [point(at, type.now)];
    return;
  }
  keep(type.points, at, before, STEP, POINTS_MAX);
  if (type.isLong) keep(type.long, at, before, LONG_STEP, LONG_MAX);
}

// Keeps what was known before this frame, unless the last point is newer than a step.
function keep(points, at, before, step, most) {
  const last = points[points.length - 1];
  if (at - last[0] < step) return;
  points.push(point(at - 1, before));
  if (points.length > most) points.shift();
}

function takeGate(frame, at) {
  const name = frame.status.name;
  let gate = world.gates.get(name);
  if (!gate) {
    gate = { name, types: new Map(), samples: [] };
    world.gates.set(name, gate);
  }
  gate.status = frame.status;
  gate.waiting = frame.waiting;
  for (const one of frame.samples) gate.samples.push(sample(one));
  if (gate.samples.length > SAMPLES_MAX) gate.samples.splice(0, gate.samples.length - SAMPLES_MAX);
  for (let i = frame.types.length - 1; i >= 0; i--) takeType(gate, frame.types[i], at);
  // Forgotten types are those not used for longest. `other` is no type.
  const most = frame.types_known + (gate.types.has("other") ? 1 : 0);
  for (const id of gate.types.keys()) {
    if (gate.types.size <= most) break;
    if (id !== "other") gate.types.delete(id);
  }
  gate.recent = null;
}

export function take(frame, isHello) {
  if (isHello) {
    world.hello = frame;
    // A stream that begins anew tells everything again; the figures of types go on where they were.
    const names = new Set(frame.gates.map((gate) => gate.status.name));
    for (const name of world.gates.keys()) if (!names.has(name)) world.gates.delete(name);
    for (const gate of world.gates.values()) gate.samples = [];
    if (frame.uptime_seconds < world.uptime) world.gates.clear(), world.events.clear();
  }
  world.phase = frame.phase;
  world.uptime = frame.uptime_seconds;
  world.memory = frame.memory;
  world.at = Date.now() / 1000;
  for (const gate of frame.gates) takeGate(gate, Math.round(world.at));
  for (const event of frame.events) world.events.set(event.id, event);
  const surplus = world.events.size - EVENTS_MAX;
  if (surplus > 0) [...world.events.keys()].slice(0, surplus).forEach((id) => world.events.delete(id));
}

// What a type did in the last minute, or since the page knows it.
export function lastMinute(type) {
  const now = type.now;
  const edge = world.at - 60;
  const first = type.points.find((it) => it[0] >= edge) ?? type.points[type.points.length - 1];
  const isIdle = type.points[type.points.length - 1][0] < edge && first[0] < edge;
  const [at, completed, refused, work, times, timeSum, waits, waitSum] = isIdle ? point(edge, now) : first;
  const seconds = Math.max(world.at - at, 1);
  const ratio = (sum, count) => (count > 0 ? sum / count : 0);
  return {
    rate: (now.completed - completed) / seconds,
    refused: now.refused - refused,
    work: Math.max(now.work - work, 0),
    mean: ratio(now.timeSum - timeSum, now.times - times) || ratio(now.timeSum, now.times),
    wait: ratio(now.waitSum - waitSum, now.waits - waits),
  };
}

// All types of a gate with their figures of the last minute; once for each frame.
export function recent(gate) {
  if (gate.recent) return gate.recent;
  const rows = [];
  let work = 0;
  let all = 0;
  for (const type of gate.types.values()) {
    const row = { type, ...lastMinute(type) };
    work += row.work;
    all += type.now.work;
    rows.push(row);
  }
  for (const row of rows) row.share = work > 0 ? row.work / work : all > 0 ? row.type.now.work / all : 0;
  rows.sort((a, b) => b.share - a.share);
  rows.forEach((row, rank) => { if (rank < LONG_TYPES) row.type.isLong = true; });
  gate.recent = rows;
  return rows;
}
