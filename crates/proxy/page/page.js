// The page: takes the stream, and draws once a frame what has changed and is on the screen.

import { Desk } from "./act.js";
import { Chart } from "./curves.js";
import { $, make, renew, say } from "./dom.js";
import { take, world } from "./model.js";
import { TypesTable } from "./types.js";
import { Stories } from "./why.js";
import { bytes, count, event, found, named, number, rate, reason, reasonMore, seconds, time, verdict, waitsFor } from "./words.js";

const TIMELINE_SHOWN = 60;
const clock = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });
// How old the figures on the screen may be, and what isn't on the screen, in ms. A browser takes far longer to
// lay out and paint them than the page takes to write them.
const AGE_MAX = 3_000;
const UNSEEN_AGE_MAX = 10_000;
// Frames don't come on the millisecond.
const FRAME_EARLY = 200;
let chosen = named(location.hash.slice(1));
// Why nothing comes, in words for the verdict; null while frames come.
let lost = null;

const charts = [
  { title: "Requests in each second", explain: "Served by the service, and refused by the gate. The figures are of the last second, or of the one that you point at", write: rate,
    lines: [{ name: "served", css: "a", of: (it) => it.served, fill: true }, { name: "refused", css: "d", of: (it) => it.refused }] },
  { title: "Wait in the queue", explain: "Of ten seconds each; 95 of 100 requests waited at most p95", write: time,
    lines: [{ name: "p95", css: "c", of: (it) => it.waitP95, fill: true }, { name: "mean", css: "e", of: (it) => it.waitMean }] },
  { title: "Time in the service", explain: "Of ten seconds each; 95 of 100 requests took at most p95", write: time,
    lines: [{ name: "p95", css: "b", of: (it) => it.timeP95, fill: true }, { name: "mean", css: "e", of: (it) => it.timeMean }] },
  { title: "Requests present", explain: "Those that the service works on, those that wait, and how many may be in flight", write: number,
    lines: [{ name: "in flight", css: "a", of: (it) => it.inFlight, fill: true }, { name: "waiting", css: "c", of: (it) => it.queued }, { name: "bound", css: "f", of: (it) => it.bound }] },
].map((chart) => new Chart($("curves"), chart));
const table = new TypesTable();
const stories = new Stories();
const desk = new Desk();

function gateNow() {
  return world.gates.get(chosen) ?? world.gates.values().next().value;
}

function drawGates(gate) {
  const names = [...world.gates.keys()];
  const key = `${names.join("\n")}\n\n${gate?.name}`;
  if ($("gates").dataset.key === key) return;
  $("gates").dataset.key = key;
  $("gates").replaceChildren(...names.map((name) => {
    const button = make("button", "", name);
    button.type = "button";
    button.setAttribute("aria-pressed", String(name === gate.name));
    button.addEventListener("click", () => {
      chosen = name;
      history.replaceState(null, "", `#${encodeURIComponent(name)}`);
      draw(true);
    });
    return button;
  }));
}

function drawVerdict(gate, [css, title, text]) {
  const tab = `${css === "good" ? "" : "● "}${title} – Gatekeeper`;
  if (document.title !== tab) document.title = tab;
  if (document.hidden) return;
  const mode = gate?.status.mode === "observe" ? " This gate only observes: everything passes, and the figures are what would be." : "";
  say($("verdict-title"), title);
  say($("verdict-text"), text + mode);
  $("verdict").className = `verdict ${css}`;
}

// A number, what it is, and what it means.
function fact(value, name, help, css = "") {
  const both = make("div", css);
  both.title = help;
  both.append(make("b", "", value), make("span", "", name));
  return both;
}

function drawNumbers({ status, samples, waiting }) {
  const last = samples.at(-1);
  const recently = samples.slice(-10);
  const mean = (of) => recently.reduce((sum, it) => sum + of(it), 0) / Math.max(recently.length, 1);
  const refused = mean((it) => it.refused);
  const failed = status.requests.failed_total + status.requests.conflicted_total;
  renew($("numbers"),
    fact(rate(mean((it) => it.served)), "served a second (of 10 s)", "Requests that ended in the service, over ten seconds"),
    fact(last ? time(last.timeP95) : "–", "p95 in the service (of 10 s)", "95 of 100 requests took at most this long, over ten seconds"),
    fact(number(status.queued), "waiting", "Requests in the queue now", status.queued > 0 ? "warn" : ""),
    fact(waiting[0] ? time(waiting[0].longest_ms * 1e3) : "–", "longest wait now", "How long the oldest request in the queue has waited"),
    fact(`${number(status.in_flight)} / ${number(status.capacity_requests ?? last?.bound ?? status.connections)}`, "in flight / bound", "Requests that the service works on, and how many there may be"),
    fact(rate(refused), "refused a second (of 10 s)", "Requests that the gate refused, over ten seconds", refused > 0 ? "bad" : ""),
    fact(number(status.clients_connected), "clients", "Clients that are connected"),
    fact(number(failed), "failed since start", "Requests that the service answered with an error, or not at all"),
  );
}

function listOf(items, none) {
  if (items.length === 0) return make("p", "quiet", none);
  const list = make("ul", "list");
  list.append(...items);
  return list;
}

function item(value, title, more, help = "") {
  const line = make("li");
  const text = make("div");
  text.append(make("span", "name", title));
  if (more) text.append(make("span", "more", more));
  if (help) line.title = help;
  line.append(make("b", "", value), text);
  return line;
}

function drawWaiting({ status, waiting }) {
  const seen = waiting.reduce((sum, it) => sum + it.requests, 0);
  const items = waiting.slice(0, 6).map((it) =>
    item(`${number(it.requests)} × ${time(it.longest_ms * 1e3)}`, it.label, `waits for ${waitsFor(status, it.lane)}`, "How many wait, and how long the oldest has"));
  const list = listOf(items, "Nobody. Requests pass as they come.");
  const rest = status.queued - seen;
  const more = waiting.length > 6 ? `${count(waiting.length - 6, "more type waits", "more types wait")}. ` : "";
  const note = more + (rest > 0 ? `The oldest ${seen} of ${number(status.queued)} are told by type.` : "");
  renew($("waiting"), list, ...(note ? [make("p", "quiet", note)] : []));
}

function drawRefused({ status, samples }) {
  const sums = new Map();
  for (const { reasons } of samples) for (const [name, n] of reasons) sums.set(name, (sums.get(name) ?? 0) + n);
  const items = [...sums].sort((a, b) => b[1] - a[1]).map(([name, n]) => item(number(n), reason(name), reasonMore(name)));
  const total = status.requests.rejected_total;
  const none = total > 0 ? "Nothing in the last ten minutes." : "Nothing.";
  const note = total > 0 ? `${number(total)} since the start${sums.size > 0 ? "; the list is of the last ten minutes" : ""}.` : "";
  renew($("refused"), listOf(items, none), ...(note ? [make("p", "quiet", note)] : []));
}

function drawFound({ status }) {
  renew($("found"), listOf(found(status).map(([name, value, why]) => item(value, name, why)), ""));
}

function drawTimeline(gate) {
  const mine = [...world.events.values()].filter((it) => it.gate === null || it.gate === gate.name);
  const shown = mine.sort((a, b) => b.last_ms - a.last_ms || b.id - a.id).slice(0, TIMELINE_SHOWN);
  const key = shown.map((it) => `${it.id}.${it.lines}`).join();
  if ($("timeline").dataset.key === key) return;
  $("timeline").dataset.key = key;
  $("timeline").replaceChildren(...shown.map((it) => {
    const line = make("li", it.level);
    const at = make("time", "", clock.format(it.last_ms));
    at.dateTime = new Date(it.last_ms).toISOString();
    const [sentence, more] = event(it);
    const text = make("div");
    text.append(make("span", "name", sentence));
    if (more) text.append(make("span", "more", more));
    line.append(at, text);
    return line;
  }));
}

function tableOf(caption, heads, rows) {
  const part = make("div", "scroll");
  part.tabIndex = 0;
  part.setAttribute("role", "region");
  part.setAttribute("aria-label", caption);
  const grid = make("table");
  grid.createCaption().textContent = caption;
  const head = grid.createTHead().insertRow();
  heads.forEach((name) => { const cell = make("th", "", name); cell.scope = "col"; head.append(cell); });
  const body = grid.createTBody();
  rows.forEach((cells) => { const line = body.insertRow(); cells.forEach((it) => line.append(it instanceof Node ? it : make("td", "", it))); });
  part.append(grid);
  return part;
}

function drawUpstream({ status }) {
  const state = (name) => { const cell = make("td"); cell.append(make("span", `chip state-${name}`, name)); return cell; };
  const parts = [tableOf("Addresses of the service", ["Address", "State", "Since", "Failures", "Last error"],
    status.upstreams.map((it) => [it.address, state(it.state), seconds(it.since_seconds), number(it.failures_total),
      it.last_error ? `${it.last_error}, ${seconds(it.last_error_seconds)} ago` : "–"]))];
  if (status.upstreams.length === 0) parts.splice(0, 1, make("p", "", `At ${status.upstream}.`));
  if (status.pools.length > 0) {
    parts.push(tableOf("Connections to it", ["User", "Database or address", "Open", "Idle"],
      status.pools.map((it) => [it.user || "–", it.database || "–", number(it.connections), number(it.idle)])));
  }
  const pins = Object.entries(status.pinned_by_reason);
  parts.push(make("p", "", status.connections_pinned > 0 || pins.length > 0
    ? `${count(status.connections_pinned, "connection is kept", "connections are kept")} by sessions: ${pins.map(([name, n]) => `${n} by ${name.replaceAll("_", " ")}`).join(", ") || "no reason told"}.`
    : "No session keeps a connection."));
  if (status.classes.length > 0) {
    parts.push(tableOf("Service classes", ["Class", "Weight", "Goal", "Waiting", "In flight", "Sent", "Refused", "Mean wait"],
      status.classes.map((it) => [it.class, it.background ? "background" : it.weight.toFixed(2), it.goal ? `${it.goal}, ${it.standing ?? "not judged yet"}` : "–", number(it.queued), number(it.in_flight), number(it.dispatched_total),
        number(it.rejected_total), it.dispatched_total > 0 ? time(it.queue_wait_seconds_total / it.dispatched_total * 1e6) : "–"])));
  }
  parts.push(make("p", "quiet", `Clients connect at ${status.listen}. ${count(status.logins_failed_total, "login has", "logins have")} failed; ${count(status.clients_refused_total, "client was", "clients were")} turned away.`));
  renew($("upstream"), ...parts);
}

function drawFoot() {
  const { limit_bytes: limit, held_bytes: held } = world.memory ?? {};
  const memory = limit > 0 ? ` Clients' messages take ${bytes(held)} of ${bytes(limit)}.` : "";
  say($("foot"), `Gatekeeper ${world.hello.version}, running for ${seconds(world.uptime)}.${memory}`);
}

function drawCurves(gate) {
  charts.forEach((chart) => chart.draw(gate.samples, gate.samples.at(-1)?.at ?? world.at));
}

// The parts of the page, by the element that must be on the screen for one to be drawn.
const parts = new Map([
  ["numbers", drawNumbers], ["curves", drawCurves], ["waiting", drawWaiting], ["refused", drawRefused], ["found", drawFound],
  ["types", (gate) => table.drawInTime(gate)], ["timeline", drawTimeline], ["upstream", drawUpstream], ["foot", drawFoot],
]);
const seen = new Set(parts.keys());
const watch = new IntersectionObserver((changes) => {
  for (const { target, isIntersecting } of changes) {
    if (!isIntersecting) seen.delete(target.id);
    else if (!seen.has(target.id)) seen.add(target.id), gateNow() && parts.get(target.id)(gateNow());
  }
});
for (const id of parts.keys()) watch.observe($(id));
let drawn = -Infinity;
let drawnAll = -Infinity;

// Draws what is due. A click or another verdict draws the whole page.
function draw(isAsked = false) {
  const gate = gateNow();
  const now = performance.now();
  const found = verdict(gate, world.phase, lost);
  const isNews = found[1] !== $("verdict-title").said;
  if (!isAsked && !isNews && now - drawn < AGE_MAX - FRAME_EARLY) return;
  drawn = now;
  drawVerdict(gate, found);
  if (!gate || document.hidden) return;
  drawGates(gate);
  const all = isAsked || now - drawnAll >= UNSEEN_AGE_MAX;
  if (all) drawnAll = now;
  for (const [id, part] of parts) if (all || seen.has(id)) part(gate);
  table.dialog.draw(gate);
  stories.draw(gate);
  desk.draw(gate);
  document.body.dataset.ready = "yes";
}

function link(text, css) {
  say($("link"), text);
  $("link").className = css;
}

function listen() {
  const stream = new EventSource("/page/events");
  const taken = (isHello) => (message) => {
    lost = null;
    take(JSON.parse(message.data), isHello);
    link("live", "live");
    draw();
  };
  stream.addEventListener("hello", taken(true));
  stream.addEventListener("frame", taken(false));
  stream.addEventListener("error", async () => {
    // The browser doesn't try again after an answer such as "no room".
    const isRefused = stream.readyState === EventSource.CLOSED;
    lost = isRefused ? await refusal() : "";
    link("not connected", "lost");
    draw(true);
    if (isRefused) setTimeout(listen, 5_000);
  });
}

// What the gate says instead of a stream: an EventSource doesn't tell. Nothing where it isn't reached.
async function refusal() {
  const stop = new AbortController();
  try {
    const answer = await fetch("/page/events", { signal: stop.signal });
    return answer.status === 503 ? (await answer.text()).trim() : "";
  } catch {
    return "";
  } finally {
    stop.abort();
  }
}

document.addEventListener("visibilitychange", () => !document.hidden && draw(true));
listen();
