// Requests and their stories: the slowest of the last minutes, or one that is asked for.

import { $, make } from "./dom.js";
import { count, time } from "./words.js";

// How many of the slowest are asked for, of how many types one is shown, and how many more of each.
const ASKED = 50;
const TYPES_SHOWN = 5;
const ALIKE_SHOWN = 9;
// How often the slowest are asked for again while there are none, in ms.
const AGAIN = 10_000;

export class Stories {
  constructor() {
    $("why-form").addEventListener("submit", (event) => { event.preventDefault(); this.ask(); });
  }

  // The first time, where another gate is shown, and while there was nothing to tell.
  draw(gate) {
    const isDue = this.isEmpty && performance.now() >= this.next;
    if (this.gate === gate.name && !isDue) return;
    this.gate = gate.name;
    this.ask();
  }

  async ask() {
    const id = $("why-id").value.trim();
    const asked = id ? `id=${encodeURIComponent(id)}` : `slowest=${ASKED}&gate=${encodeURIComponent(this.gate)}`;
    this.asked = asked;
    this.isEmpty = false;
    let lines;
    try {
      const answer = await fetch(`/why?${asked}`);
      lines = answer.ok ? grouped((await answer.json()).requests) : [make("li", "quiet", (await answer.text()).trim())];
    } catch {
      lines = [make("li", "quiet", "The gatekeeper can't be asked now.")];
    }
    if (this.asked !== asked) return;
    if (lines.length === 0) {
      [this.isEmpty, this.next] = [true, performance.now() + AGAIN];
      lines = [make("li", "quiet", "No requests in the last five minutes.")];
    }
    $("why-list").replaceChildren(...lines);
  }
}

// One line for each type; the slowest of one type are often nearly alike.
function grouped(requests) {
  const types = Map.groupBy(requests, (it) => `${it.label}\n${it.state}`);
  return [...types.values()].slice(0, TYPES_SHOWN).map(([slowest, ...others]) => {
    const item = make("li");
    item.append(story(slowest, others));
    return item;
  });
}

function story(told, others = []) {
  const whole = make("details");
  const head = make("summary");
  const wait = told.queue_wait_seconds > 0 ? `, of which ${time(told.queue_wait_seconds * 1e6)} waiting` : "";
  const more = others.length > 0 ? `; ${count(others.length, "more like it", "more like it")}` : "";
  head.append(make("b", "", time(told.response_seconds * 1e6)), make("span", "name", ` ${told.label}`), make("span", "more", `${told.state}${wait}${more}`));
  whole.append(head, ...told.story.map((sentence) => make("p", "", sentence)), ...others.slice(0, ALIKE_SHOWN).map((it) => story(it)));
  return whole;
}
