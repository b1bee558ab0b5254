// Curves of the last ten minutes, drawn as SVG: thin lines, one hairline that follows the pointer, no library.

import { make, renew, say } from "./dom.js";

const NS = "http://www.w3.org/2000/svg";
// Ten to a pixel or so, so that places are whole numbers: those are written quickly.
const WIDTH = 3_000;
const HEIGHT = 720;
const SPAN = 600;
// How often a curve is drawn while it moves from one edge to the other.
const STEPS = 120;

export function svg(name, attributes = {}, parent = null) {
  const element = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  parent?.append(element);
  return element;
}

// The least round number that isn't below.
export function ceiling(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 2.5, 5, 10].map((it) => it * power).find((it) => it >= value * 0.999);
}

// One chart. `lines`: {name, css, of(sample), fill}. `write` makes a value a text.
export class Chart {
  constructor(parent, { title, explain, lines, write }) {
    this.lines = lines;
    this.write = write;
    this.root = document.createElement("figure");
    const caption = document.createElement("figcaption");
    const heading = document.createElement("h3");
    heading.textContent = title;
    heading.title = explain;
    this.keys = document.createElement("p");
    caption.append(heading, this.keys);
    this.svg = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" });
    this.name = svg("title", {}, this.svg);
    svg("line", { x1: 0, x2: WIDTH, y1: HEIGHT - 5, y2: HEIGHT - 5, class: "axis" }, this.svg);
    svg("line", { x1: 0, x2: WIDTH, y1: 5, y2: 5, class: "axis faint" }, this.svg);
    this.paths = lines.map(({ css }) => [
      svg("path", { class: `area ${css}` }, this.svg),
      svg("path", { class: `line ${css}` }, this.svg),
    ]);
    this.hair = svg("line", { y1: 0, y2: HEIGHT, class: "hair", visibility: "hidden" }, this.svg);
    this.top = document.createElement("span");
    this.top.className = "top";
    const frame = document.createElement("div");
    frame.className = "frame";
    frame.append(this.svg, this.top);
    this.root.append(caption, frame);
    this.title = title;
    parent.append(this.root);
    this.svg.addEventListener("pointermove", (event) => this.point(event));
    this.svg.addEventListener("pointerleave", () => this.point(null));
  }

  point(event) {
    const box = this.svg.getBoundingClientRect();
    this.pointed = event && box.width > 0 ? (event.clientX - box.left) / box.width : null;
    this.legend();
  }

  draw(samples, now, span = SPAN) {
    // A curve that would move by two pixels or so stays; the figures above it are new.
    const isOld = samples !== this.samples || span !== this.span || now - this.now >= span / STEPS;
    this.samples = samples;
    if (!isOld) return this.legend();
    this.now = now;
    this.span = span;
    const at = (sample) => WIDTH * (1 - (now - sample.at) / span);
    let most = 0;
    for (const sample of samples) for (const { of } of this.lines) most = Math.max(most, of(sample) ?? 0);
    const top = ceiling(most);
    say(this.top, this.write(top));
    this.lines.forEach(({ of, fill }, index) => {
      let line = "";
      let last = null;
      let begin = null;
      for (const sample of samples) {
        const value = of(sample);
        const x = at(sample);
        if (x < -20 || value === null || value === undefined) continue;
        const y = HEIGHT - 10 - (HEIGHT - 30) * (value / top);
        // A gap of more than a few seconds is a gap.
        const gap = last === null || sample.at - last > Math.max(5, span / 40);
        line += `${gap ? "M" : "L"}${Math.round(x)} ${Math.round(y)}`;
        begin ??= x;
        last = sample.at;
      }
      const [area, stroke] = this.paths[index];
      stroke.setAttribute("d", line);
      const isWhole = fill && begin !== null && line.indexOf("M", 1) < 0;
      const end = last === null ? 0 : WIDTH * (1 - (now - last) / span);
      area.setAttribute("d", isWhole ? `${line}L${Math.round(end)} ${HEIGHT}L${Math.round(begin)} ${HEIGHT}Z` : "");
    });
    this.legend();
  }

  // The values under the pointer, else the latest.
  legend() {
    const samples = this.samples ?? [];
    let shown = samples[samples.length - 1];
    if (this.pointed !== null && this.pointed !== undefined && shown) {
      const wanted = this.now - (1 - this.pointed) * this.span;
      for (const sample of samples) if (Math.abs(sample.at - wanted) < Math.abs(shown.at - wanted)) shown = sample;
      const x = WIDTH * (1 - (this.now - shown.at) / this.span);
      this.hair.setAttribute("x1", x);
      this.hair.setAttribute("x2", x);
      this.hair.setAttribute("visibility", "visible");
    } else {
      this.hair.setAttribute("visibility", "hidden");
    }
    const texts = this.lines.map(({ name, css, of }) => {
      const key = make("span", `key ${css}`);
      key.append(`${name} `, make("b", "", shown && of(shown) !== null ? this.write(of(shown)) : "–"));
      return key;
    });
    const isPast = this.hair.getAttribute("visibility") === "visible";
    if (isPast) texts.unshift(new Text(new Date(shown.at * 1000).toLocaleTimeString()));
    renew(this.keys, ...texts.flatMap((it) => [it, new Text(" ")]));
    const told = this.lines.map(({ name, of }) => `${name} ${shown && of(shown) !== null ? this.write(of(shown)) : "none"}`);
    say(this.name, `${this.title}: ${told.join(", ")}`);
  }
}
