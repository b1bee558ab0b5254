// What the page knows: the gates, their samples and types, made from the frames of the stream.

const SAMPLES_MAX = 600;
const EVENTS_MAX = 200;
// Figures of a type are told of the last minute. Points lie at least this far apart, in seconds.
const STEP = 10;
const POINTS_MAX = 8;
// Types that somebody looks at, and those with most work, have a longer past.
const LONG_STEP = 10;
const LONG_MAX = 60;
const LONG_TYPES = 300;

export const world = { hello: null, phase: "", uptime: 0, memory: null, gates: new Map(), events: new Map(), at: 0, uses: 0 };

function sample([at, served, refused, left, times, queued, inFlight, bound, reasons]) {
  const [waitMean, waitP95, timeMean, timeP95] = times;
  return { at, served, refused, left, waitMean, waitP95, timeMean, timeP95, queued, inFlight, bound, reasons };
}

// A type's figures since the start, all times in microseconds: as they came, and by name for what is drawn.
class Type {
  constructor(id) {
    this.id = id;
    this.label = id;
    this.points = [];
    this.long = [];
  }

  get now() {
    if (this.named) return this.named;
    const [, , lane, [expected, work], [completed, failed, refused, left], up, wait] = this.row;
    this.named = {
      lane, expected, work, completed, failed, refused, left,
      times: up[0], timeSum: up[1], timeP50: up[2], timeP95: up[3],
      waits: wait[0], waitSum: wait[1], waitP50: wait[2], waitP95: wait[3],
    };
    return this.named;
  }
}

// By index: a thousand a second aren't taken apart by name.
const point = (at, row) => [at, row[4][0], row[4][2], row[3][1], row[5][0], row[5][1], row[6][0], row[6][1]];

function takeType(gate, row, at) {
  let type = gate.types.get(row[0]);
  if (!type) gate.types.set(row[0], (type = new Type(row[0])));
  if (row[1] !== null) type.label = row[1];
  type.used = ++world.uses;
  const before = type.row;
  type.row = row;
  type.named = null;
  if (!before || row[4][0] < before[4][0]) {
    type.points = [point(at, row)];
    type.long = [point(at, row)];
    return;
  }
  keep(type.points, at, before, STEP, POINTS_MAX);
  if (type.isLong) keep(type.long, at, before, LONG_STEP, LONG_MAX);
}

// Forgets those not used for longest, as the gatekeeper does. `other` is no type.
function forget(types, most) {
  const surplus = types.size - most - (types.has("other") ? 1 : 0);
  if (surplus <= 0) return;
  const oldest = [...types.values()].filter((it) => it.id !== "other").sort((a, b) => a.used - b.used);
  for (const { id } of oldest.slice(0, surplus)) types.delete(id);
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
  forget(gate.types, frame.types_known);
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

const ratio = (sum, count) => (count > 0 ? sum / count : 0);

// What a type did in the last minute, or since the page knows it.
class Recent {
  constructor(type) {
    this.type = type;
    const edge = world.at - 60;
    const { points, row } = type;
    let at = 0;
    while (at < points.length && points[at][0] < edge) at++;
    // One that wasn't used for a minute did nothing.
    this.before = points[at] ?? point(edge, row);
    this.work = Math.max(row[3][1] - this.before[3], 0);
    this.share = 0;
  }

  get rate() {
    return (this.type.row[4][0] - this.before[1]) / Math.max(world.at - this.before[0], 1);
  }

  get mean() {
    const [times, sum] = this.type.row[5];
    return ratio(sum - this.before[5], times - this.before[4]) || ratio(sum, times);
  }

  get wait() {
    const [waits, sum] = this.type.row[6];
    return ratio(sum - this.before[7], waits - this.before[6]);
  }
}

// The first of all in an order, without ordering the rest: people look at few of thousands.
export function first(rows, most, compare) {
  const best = [];
  for (const row of rows) {
    if (best.length >= most && compare(row, best[best.length - 1]) >= 0) continue;
    let [low, high] = [0, best.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (compare(row, best[middle]) < 0) high = middle;
      else low = middle + 1;
    }
    best.splice(low, 0, row);
    if (best.length > most) best.pop();
  }
  return best;
}

// All types of a gate with their figures of the last minute; once for each frame.
export function recent(gate) {
  if (gate.recent) return gate.recent;
  const rows = [];
  let work = 0;
  let all = 0;
  for (const type of gate.types.values()) {
    const row = new Recent(type);
    work += row.work;
    all += type.row[3][1];
    rows.push(row);
  }
  for (const row of rows) row.share = work > 0 ? row.work / work : all > 0 ? row.type.row[3][1] / all : 0;
  for (const row of first(rows, LONG_TYPES, (a, b) => b.share - a.share)) row.type.isLong = true;
  gate.recent = rows;
  return rows;
}
