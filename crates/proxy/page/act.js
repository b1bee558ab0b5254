// What an operator can do to a gate, with the token. Each deed says before what will happen.

import { $, make, renew, say } from "./dom.js";
import { count, number, time } from "./words.js";

const isPaused = ({ paused }) => paused.includes("*");

// A capacity in words, as far as it can be foretold. `mean`: what a request takes, in microseconds.
export function boundMeans(text, mean) {
  const units = { us: 1, ms: 1e3, s: 1e6, m: 60e6, h: 3600e6 };
  if (text === "none") return "Nothing but the connections and the long lane bounds what is in flight.";
  if (text === "auto") return "The gate finds how many requests may be in flight.";
  const parts = /^(\d+ ?(us|ms|s|m|h) ?)+$/.test(text) ? [...text.matchAll(/(\d+) ?(us|ms|s|m|h)/g)] : [];
  const work = parts.reduce((sum, [, value, unit]) => sum + Number(value) * units[unit], 0);
  if (work === 0) return "Write an amount of work, such as 200ms or 1m 30s, or auto, or none.";
  const most = mean > 0 ? `, about ${number(Math.max(1, Math.floor(work / mean)))} requests of the ${time(mean)} that they took lately` : "";
  return `At most ${time(work)} of expected work is in flight${most}. More requests wait.`;
}

// What can be done: a name, the request, and what will happen, in sentences.
const DEEDS = {
  pause: {
    name: "Pause", done: "Pause the gate", path: "pause",
    happens: ({ status }) => [
      `New requests wait. The ${number(status.in_flight)} in flight may end.`,
      `Clients notice nothing but the wait, up to queue_timeout. ${count(status.queued, "request waits", "requests wait")} now.`,
      "It lasts until somebody resumes. Closing this before the last request has ended takes it back.",
    ],
    working: "Waiting for the last request in flight …",
  },
  resume: {
    name: "Resume", done: "Resume", path: "resume",
    happens: ({ status }) => [`${count(status.queued, "request waits", "requests wait")} now. They go in the gate's order, as there is room.`],
  },
  bound: {
    name: "Another bound", done: "Set the bound", path: "", method: "PATCH",
    happens: ({ status }) => [
      `It holds ${status.passes_everything ? "once the gate decides again" : "at once"}, until the next reload or restart. Requests in flight go on.`,
    ],
  },
  pass: {
    name: "Emergency: pass everything through", done: "Let everything pass", path: "pass", css: "danger",
    happens: ({ status }) => [
      status.passing_max === null
        ? `Every request goes to the service at once, also the ${number(status.queued)} that wait now.`
        : `Requests go first come, first served, up to ${number(status.passing_max)} at once: the service has no more connections. ${number(status.queued)} wait now.`,
      "No order, capacity, long lane, target or class holds, and nobody is refused for one. Tenants still take turns.",
      "The gate prevents overload no longer. Do it where the gate itself is the trouble.",
      `A full queue, queue_timeout and max_clients hold all the same.${isPaused(status) ? " The pause stays." : ""}`,
      "It lasts until somebody lets the gate decide again, or a restart; a reload doesn't end it.",
    ],
  },
  enforce: {
    name: "Let the gate decide again", done: "Let it decide", path: "enforce",
    happens: () => ["The configuration decides again, at once. What was learned of the types is kept; bounds that the gate had found are searched for anew."],
  },
};

export class Desk {
  constructor() {
    // Only here: a page that is loaded anew asks again.
    this.token = "";
    this.dialog = $("act-dialog");
    $("token-form").addEventListener("submit", (event) => { event.preventDefault(); this.unlock(); });
    // The browser tells of a close when the next dialog may be open already.
    this.dialog.addEventListener("close", () => { if (!this.dialog.open) this.stop?.abort(); });
  }

  draw(gate) {
    this.gate = gate;
    if (!this.token) return;
    if (this.dialog.open) this.tell?.();
    const { status } = gate;
    const observes = status.mode === "observe";
    const deeds = [isPaused(status) ? "resume" : "pause", "bound", status.passes_everything ? "enforce" : "pass"];
    const key = `${gate.name} ${deeds} ${observes}`;
    if (this.shown === key) return;
    this.shown = key;
    $("actions").replaceChildren(...deeds.map((id) => {
      const button = make("button", DEEDS[id].css ?? "", `${DEEDS[id].name} …`);
      button.type = "button";
      button.disabled = observes && id === "pass";
      if (button.disabled) button.title = "This gate only observes: everything passes";
      button.addEventListener("click", () => this.ask(id));
      return button;
    }));
  }

  // Asks the gatekeeper whether the token is the right one.
  async unlock() {
    const token = $("token").value.trim();
    const [isDone, said] = await this.send("/allowed", "POST", token);
    say($("token-said"), isDone ? "" : `Not unlocked: ${said}`);
    if (!isDone) return;
    this.token = token;
    $("token").value = "";
    $("token-form").hidden = true;
    $("actions").hidden = false;
    if (this.gate) this.draw(this.gate);
    $("actions").firstChild?.focus();
  }

  // Whether it was done, and what the gatekeeper says.
  async send(path, method, token, { body, signal } = {}) {
    try {
      const answer = await fetch(path, { method, body, signal, headers: { Authorization: `Bearer ${token}` } });
      return [answer.ok, (await answer.text()).trim()];
    } catch (error) {
      return [false, signal?.aborted ? "taken back" : `the gatekeeper can't be asked (${error.message})`];
    }
  }

  async ask(id) {
    const { gate } = this;
    const deed = DEEDS[id];
    const place = `/gates/${encodeURIComponent(gate.name)}`;
    const title = make("h2", "", `${deed.name}: gate ${gate.name}`);
    title.id = "act-dialog-title";
    const list = make("ul");
    // What will happen changes while somebody reads it.
    this.tell = () => this.gate.name === gate.name && renew(list, ...deed.happens(this.gate).map((it) => make("li", "", it)));
    this.tell();
    const said = make("p", "said");
    said.setAttribute("role", "alert");
    const cancel = make("button", "", "Cancel");
    cancel.type = "button";
    cancel.addEventListener("click", () => this.dialog.close());
    // What does harm by a slip isn't a key press away.
    cancel.autofocus = deed.css === "danger";
    const go = make("button", deed.css ?? "", deed.done);
    const form = make("form");
    const bar = make("div", "bar");
    bar.append(go, cancel);
    form.append(list, ...(id === "bound" ? await this.boundField(place, gate) : []), said, bar);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.carryOut(deed, place, { go, cancel, said, form });
    });
    form.addEventListener("input", () => say(said, ""));
    renew(this.dialog);
    this.dialog.append(title, form);
    this.dialog.showModal();
  }

  async boundField(place, gate) {
    const known = await fetch(place).then((answer) => answer.json()).catch(() => ({ capacity: "" }));
    const label = make("label", "", "Capacity ");
    const field = make("input");
    field.name = "capacity";
    field.autocomplete = "off";
    field.required = true;
    field.value = known.capacity;
    label.append(field);
    const means = make("p", "quiet");
    const tell = () => say(means, boundMeans(field.value.trim(), gate.samples.at(-1)?.timeMean ?? 0));
    field.addEventListener("input", tell);
    tell();
    return [label, means];
  }

  async carryOut(deed, place, { go, cancel, said, form }) {
    go.disabled = true;
    this.tell = null;
    say(said, deed.working ?? "");
    const stop = new AbortController();
    this.stop = stop;
    const field = form.elements.namedItem("capacity");
    const body = field ? JSON.stringify({ capacity: field.value.trim() }) : undefined;
    const [isDone, answer] = await this.send(deed.path ? `${place}/${deed.path}` : place, deed.method ?? "POST", this.token, { body, signal: stop.signal });
    this.stop = null;
    go.disabled = isDone;
    say(said, isDone ? (field ? "Done." : `Done: ${answer}`) : `Not done: ${answer}`);
    if (isDone) say(cancel, "Close"), cancel.focus();
  }
}
