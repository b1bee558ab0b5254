// Requests and their stories: the slowest of the last minutes, or one that is asked for.

import { time } from "./words.js";

const $ = (id) => document.getElementById(id);
const make = (name, css, text) => {
  const element = document.createElement(name);
  if (css) element.className = css;
  if (text !== undefined) element.textContent = text;
  return element;
};

export class Stories {
  constructor() {
    $("why-form").addEventListener("submit", (event) => { event.preventDefault(); this.ask(); });
  }

  // The first time, and where another gate is shown.
  draw(gate) {
    if (this.gate === gate.name) return;
    this.gate = gate.name;
    this.ask();
  }

  async ask() {
    const id = $("why-id").value.trim();
    const asked = id ? `id=${encodeURIComponent(id)}` : `slowest=10&gate=${encodeURIComponent(this.gate)}`;
    this.asked = asked;
    let lines;
    try {
      const answer = await fetch(`/why?${asked}`);
      lines = answer.ok ? (await answer.json()).requests.map(line) : [make("li", "quiet", (await answer.text()).trim())];
    } catch {
      lines = [make("li", "quiet", "The gatekeeper can't be asked now.")];
    }
    if (this.asked !== asked) return;
    if (lines.length === 0) lines = [make("li", "quiet", "No requests yet.")];
    $("why-list").replaceChildren(...lines);
  }
}

function line(told) {
  const item = make("li");
  const story = make("details");
  const head = make("summary");
  const wait = told.queue_wait_seconds > 0 ? `, of which ${time(told.queue_wait_seconds * 1e6)} waiting` : "";
  head.append(make("b", "", time(told.response_seconds * 1e6)), make("span", "name", ` ${told.label}`), make("span", "more", `${told.state}${wait}`));
  story.append(head, ...told.story.map((sentence) => make("p", "", sentence)));
  item.append(story);
  return item;
}
