// The table of request types: sorts, searches, and opens one.

import { Chart } from "./curves.js";
import { $, make, renew, say } from "./dom.js";
import { first, recent, world } from "./model.js";
import { count, laneWhy, number, rate, share, time } from "./words.js";

const PAGE = matchMedia("(max-width: 640px)").matches ? 8 : 20;
// How old the table may be, in ms, for each type that is sorted: thousands are sorted less often than frames come.
const TYPE_AGE = 1;
const TABLE_AGE_MAX = 10_000;
const COLUMNS = [
  { key: "label", name: "Type", help: "The statement or page without its literals", of: (row) => row.type.label, css: "text" },
  { key: "lane", name: "Lane", help: "Where its requests queue, by what one takes", of: (row) => row.type.now.lane, css: "lane" },
  { key: "rate", name: "Rate/s", help: "Requests a second that ended, in the last minute", of: (row) => row.rate, write: rate },
  { key: "mean", name: "Mean", help: "Mean time in the service, in the last minute", of: (row) => row.mean, write: time },
  { key: "p95", name: "p95", help: "95 of 100 requests took at most this long in the service, since the start", of: (row) => row.type.now.timeP95, write: time },
  { key: "wait", name: "Wait", help: "Mean wait in the queue, in the last minute", of: (row) => row.wait, write: time },
  { key: "share", name: "Share", help: "Its part of all work in the last minute", of: (row) => row.share, write: share },
  { key: "refused", name: "Refused", help: "Requests refused since the start", of: (row) => row.type.now.refused, write: number },
];

export class TypesTable {
  constructor() {
    this.sort = "share";
    this.descending = true;
    this.shown = PAGE;
    this.rows = new Map();
    this.dialog = new TypeDialog();
    const head = make("tr");
    this.heads = COLUMNS.map((column) => {
      const cell = make("th", column.css ?? "figure");
      cell.scope = "col";
      const button = make("button", "", column.name);
      button.type = "button";
      button.title = column.help;
      button.addEventListener("click", () => this.sortBy(column));
      cell.append(button);
      head.append(cell);
      return cell;
    });
    $("types-table").tHead.append(head);
    this.body = $("types-table").tBodies[0];
    this.body.addEventListener("pointerenter", () => (this.isHeld = true));
    this.body.addEventListener("pointerleave", () => (this.isHeld = false));
    $("search").addEventListener("input", () => this.anew());
    $("lane").addEventListener("change", () => this.anew());
    $("more").addEventListener("click", () => { this.shown += 5 * PAGE; this.draw(this.gate, true); });
  }

  sortBy({ key }) {
    this.descending = this.sort === key ? !this.descending : !["label", "lane"].includes(key);
    this.sort = key;
    this.anew();
  }

  anew() {
    this.shown = PAGE;
    if (this.gate) this.draw(this.gate, true);
  }

  // Those that are asked for, and their order.
  found(gate) {
    const words = $("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    const lane = $("lane").value;
    const all = recent(gate);
    const rows = words.length === 0 && !lane ? all : all.filter(({ type }) => {
      if (lane && type.now.lane !== lane) return false;
      const text = words.length > 0 ? `${type.label} ${type.id}`.toLowerCase() : "";
      return words.every((word) => text.includes(word));
    });
    const { of } = COLUMNS.find((column) => column.key === this.sort);
    const sign = this.descending ? -1 : 1;
    const compare = (a, b) => (typeof a === "string" ? a.localeCompare(b) : a - b);
    return [rows, (a, b) => sign * compare(of(a), of(b)) || b.type.row[3][1] - a.type.row[3][1]];
  }

  // What is asked for is there at once.
  drawInTime(gate) {
    const now = performance.now();
    if (this.gate === gate && now < this.next) return;
    this.next = now + Math.min(gate.types.size * TYPE_AGE, TABLE_AGE_MAX);
    this.draw(gate);
  }

  draw(gate, isAsked = false) {
    if (this.gate !== gate) this.rows.clear(), this.body.replaceChildren();
    this.gate = gate;
    this.heads.forEach((cell, index) => {
      const isSorted = COLUMNS[index].key === this.sort;
      if (isSorted) cell.setAttribute("aria-sort", this.descending ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
    });
    const [all, compare] = this.found(gate);
    // Rows stay where they are while the pointer is over them.
    const isHeld = (this.isHeld || this.body.contains(document.activeElement)) && !isAsked && this.rows.size > 0;
    if (isHeld) {
      for (const row of all) if (this.rows.has(row.type.id)) this.fill(this.rows.get(row.type.id), row, gate);
    } else {
      const shown = first(all, this.shown, compare);
      const kept = new Map();
      const lines = shown.map((row) => {
        const line = this.rows.get(row.type.id) ?? this.line(row.type.id);
        kept.set(row.type.id, line);
        this.fill(line, row, gate);
        return line;
      });
      this.rows = kept;
      if (lines.length !== this.body.rows.length || lines.some((line, at) => this.body.rows[at] !== line)) this.body.replaceChildren(...lines);
    }
    const known = gate.types.size;
    say($("types-count"), all.length < known ? `${number(all.length)} of ${number(known)}` : count(known, "type"));
    $("more").hidden = all.length <= this.shown;
    say($("more"), `Show more of ${number(all.length - this.shown)}`);
  }

  line(id) {
    const line = make("tr");
    line.cells_ = COLUMNS.map(({ css, key }) => {
      const cell = make("td", css ?? "figure");
      if (key === "label") {
        cell.append(make("button", "open"));
        cell.firstChild.type = "button";
      }
      if (key === "share") cell.append(make("span", "meter"), make("span"));
      line.append(cell);
      return cell;
    });
    line.addEventListener("click", () => this.dialog.open(this.gate, id));
    return line;
  }

  fill(line, row, gate) {
    COLUMNS.forEach(({ key, of, write }, index) => {
      const cell = line.cells_[index];
      const value = of(row);
      if (key === "label") {
        say(cell.firstChild, value);
      } else if (key === "lane") {
        if (cell.textContent !== value) cell.replaceChildren(make("span", `chip ${value}`, value));
        cell.title = laneWhy(row.type.now, gate.status);
      } else if (key === "share") {
        cell.firstChild.style.width = `${(value * 100).toFixed(1)}%`;
        say(cell.lastChild, write(value));
      } else {
        const isNothing = !(value > 0);
        say(cell, isNothing ? "–" : write(value));
        cell.classList.toggle("none", isNothing);
        if (key === "refused") cell.classList.toggle("alarm", !isNothing);
      }
    });
  }
}

// One type, opened.
class TypeDialog {
  constructor() {
    this.root = $("type");
    this.root.addEventListener("click", (event) => event.target === this.root && this.root.close());
  }

  open(gate, id) {
    const type = gate.types.get(id);
    if (!type) return;
    type.isLong = true;
    this.id = id;
    this.gateName = gate.name;
    this.root.replaceChildren();
    const head = make("div", "head");
    const title = make("h2", "", "One request type");
    title.id = "type-title";
    const close = make("button", "", "Close");
    close.type = "button";
    close.addEventListener("click", () => this.root.close());
    head.append(title, close);
    this.label = make("pre", "", type.label);
    this.label.tabIndex = 0;
    this.label.setAttribute("role", "region");
    this.label.setAttribute("aria-label", "Its text");
    this.why = make("p", "why");
    this.facts = make("dl", "facts");
    const curves = make("div", "curves");
    this.rate = new Chart(curves, {
      title: "Requests a second", explain: "Requests that ended",
      lines: [{ name: "ended", css: "a", of: (it) => it.rate, fill: true }], write: rate,
    });
    this.times = new Chart(curves, {
      title: "Mean times", explain: "In the service, and waiting in the queue before",
      lines: [{ name: "service", css: "b", of: (it) => it.mean }, { name: "wait", css: "c", of: (it) => it.wait }], write: time,
    });
    this.past = make("p", "quiet");
    this.modes = make("div", "modes");
    this.root.append(head, this.label, this.why, this.facts, curves, this.past, this.modes);
    this.root.showModal();
    this.draw(gate);
    this.ask();
  }

  // What only the gatekeeper knows, asked once for each opening.
  async ask() {
    const id = this.id;
    this.modes.replaceChildren(make("p", "quiet", "Asking for what was learned …"));
    try {
      const answer = await fetch(`/types?gate=${encodeURIComponent(this.gateName)}&id=${encodeURIComponent(id)}`);
      const known = (await answer.json()).gates[0].types.find((it) => it.id === id);
      if (this.id === id) this.showLearned(known);
    } catch {
      this.modes.replaceChildren(make("p", "quiet", "What was learned of it can't be had now."));
    }
  }

  showLearned(known) {
    this.modes.replaceChildren();
    if (!known) return;
    const learned = known.samples > 0 ? `Learned from ${count(known.samples, "execution")}.` : "Nothing has been learned yet.";
    const varies = known.variation === null ? "" : ` Its times vary by ${share(known.variation)} of the mean.`;
    const now = ` ${count(known.in_flight, "request")} in flight, ${number(known.queued)} waiting.`;
    this.modes.append(make("h3", "", "What was learned"), make("p", "", learned + varies + now));
    if (known.target) {
      const { mean_seconds: mean, p95_seconds: p95, present, present_bound: bound } = known.target;
      const goal = [mean && `mean ${time(mean * 1e6)}`, p95 && `p95 ${time(p95 * 1e6)}`].filter(Boolean).join(", ");
      const most = bound === null ? "nothing limits it now" : `at most ${Math.floor(bound)} may be present`;
      this.modes.append(make("p", "", `Its own target: ${goal}. ${present} are present, ${most}.`));
    }
    if (known.modes.length > 1) {
      this.modes.append(make("p", "", "Its executions gather around several times, as if it were several types:"));
    }
    const list = make("ul", "modes");
    for (const mode of known.modes) {
      const item = make("li");
      const bar = make("span", "meter");
      bar.style.width = `${(mode.share * 60).toFixed(1)}%`;
      item.append(make("span", "at", time(mode.work_seconds * 1e6)), bar, make("span", "", share(mode.share)));
      list.append(item);
    }
    if (known.modes.length > 0) this.modes.append(list);
    if (known.asked_by?.length > 0) {
      const all = known.requests.dispatched_total + known.requests.rejected_total + known.requests.left_total + known.queued;
      const of = ({ user, application, requests }) => `${user}${application ? ` (${application})` : ""} ${share(Math.min(1, requests / Math.max(all, 1)))}`;
      this.modes.append(make("p", "", `Asked for by: ${known.asked_by.map(of).join(", ")}.`));
    }
    const refused = Object.entries(known.requests.rejected_by_reason).filter(([, n]) => n > 0);
    if (refused.length > 0) {
      this.modes.append(make("p", "", `Refused: ${refused.map(([name, n]) => `${number(n)} ${name}`).join(", ")}.`));
    }
  }

  draw(gate) {
    if (!this.root.open || gate.name !== this.gateName) return;
    const type = gate.types.get(this.id);
    if (!type) {
      this.why.textContent = "The gate has forgotten this type: others were used since, and types_max bounds how many are known.";
      return;
    }
    const now = type.now;
    const row = recent(gate).find((it) => it.type === type);
    renew(this.why, make("span", `chip ${now.lane}`, now.lane), new Text(` ${laneWhy(now, gate.status)}`));
    const facts = [
      ["rate", `${rate(row.rate)} a second`], ["share of the work", share(row.share)],
      ["mean, last minute", time(row.mean)], ["half within", time(now.timeP50)], ["95 % within", time(now.timeP95)],
      ["mean wait, last minute", time(row.wait)], ["95 % waited at most", time(now.waitP95)],
      ["ended", number(now.completed)], ["failed", number(now.failed)], ["refused", number(now.refused)],
      ["left the queue", number(now.left)], ["fingerprint", type.id],
    ];
    renew(this.facts, ...facts.map(([name, value]) => pair(name, value)));
    const at = Math.round(world.at);
    const points = (type.long.length >= type.points.length ? type.long : type.points).concat([
      [at, now.completed, now.refused, now.work, now.times, now.timeSum, now.waits, now.waitSum],
    ]);
    const samples = points.slice(1).map((it, index) => {
      const before = points[index];
      const ratio = (sum, n) => (n > 0 ? sum / n : null);
      return {
        at: it[0], rate: (it[1] - before[1]) / Math.max(it[0] - before[0], 1),
        mean: ratio(it[5] - before[5], it[4] - before[4]), wait: ratio(it[7] - before[7], it[6] - before[6]),
      };
    });
    const span = Math.max(60, at - points[0][0]);
    this.rate.draw(samples, at, span);
    this.times.draw(samples, at, span);
    say(this.past, `The curves begin when this page first saw the type: ${Math.round(span / 60)} min ago at most.`);
  }
}

function pair(name, value) {
  const both = make("div");
  both.append(make("dt", "", name), make("dd", "", value));
  return both;
}
