/** Every score of every head: now, as a matrix, and over training, as lines. */
import { Chart } from "./chart.js";
import { $, cellAt, fill, look, number, sharp, stamp } from "./dom.js";
import { isDark } from "./host.js";
import { colours, shade } from "./palette.js";
import { allHeads, label, nameOf, ranking, scoresOf, short, since, strongest } from "./scoring.js";

const LISTED = 64; // heads
const BOUNDS = { __proto__: null, ablation: [-0.02, 0.05], loss: [0, 1], gain: [0, 0.5] }; // of a chart, at least

export class Scores {
  constructor(app) {
    this.app = app;
    this.chart = new Chart($(".chart canvas"), {
      onpick: ({ step, at: [layer, head] = app.selected }) => app.set({ step, layer, head }),
      onhover: (on) => {
        app.say(on && `${on.name} at step ${on.step}: ${number(on.value, 3)}. Click to go there.`);
        this.draw(on?.name);
      },
    });
  }

  get names() {
    const { history, maps } = this.app;
    const there = (name) => history?.headers.some((header) => header?.[name] != null);
    return [...scoresOf(maps.header), ...["ablation", "gain", "loss"].filter(there)];
  }
  get name() { return this.names.includes(this.app.state.score) ? this.app.state.score : this.names[0]; }

  /** What a score is at the step in view, or, as of ablation, was when last measured: (L, H) or one number. */
  now(name = this.name) {
    const { maps: { header }, history, place: { step } } = this.app;
    const past = history?.headers.slice(0, history.steps.indexOf(step) + 1);
    return header.scores[name] ?? (past ? past.findLast((one) => one?.[name] != null)?.[name] : header[name]);
  }

  show() {
    $("#cards").replaceChildren(...this.names.map((one) => this.card(one)));
    $("#score-name").textContent = this.name ? label(this.name) : "No scores were recorded.";
    $("#score-says").replaceChildren(explanation(this.name));
    $("#scores .parts").hidden = !this.name;
    if (!this.name) return;
    this.list();
    this.draw();
  }

  draw(hovered) {
    const { app: { history, selected, place, state: { axis } }, name } = this;
    if (!history || !name) return;
    const [steps, lines, bounds] = [history.steps, this.lines(), BOUNDS[name] ?? [0, 1]];
    const front = lines[0].at ? nameOf(selected) : label(name);
    this.chart.show({ steps, lines, front, hovered, current: place.step, axis, bounds });
    this.chart.canvas.ariaLabel = `${label(name)} at ${steps.length} steps; now ${this.best(name)}`;
  }

  /** A line for each head, or one if the score is a single number. */
  lines() {
    const { name, app: { history, maps } } = this;
    const all = history?.headers.map((header) => header?.scores[name] ?? header?.[name] ?? null) ?? [];
    if (!all.some(Array.isArray)) return [{ name: label(name), values: all }];
    const values = ([l, h]) => all.map((matrix) => matrix?.[l]?.[h] ?? null);
    return allHeads(maps.header).map((at) => ({ name: nameOf(at), at, values: values(at) }));
  }

  /** The most of a score, in words. */
  best(name) {
    const now = this.now(name);
    if (now == null) return "not measured yet";
    const [{ at, value }] = Array.isArray(now) ? ranking(now) : [{ value: now }];
    return at ? `most: ${nameOf(at)} ${number(value)}` : `${number(value)} nats a token`;
  }

  card(name) {
    const { app } = this;
    const [card, matrix] = [stamp("score"), this.now(name)];
    const [button, canvas] = [$("button", card), $(".matrix", card)];
    canvas.hidden = !Array.isArray(matrix);
    if (!canvas.hidden) drawMatrix(app, canvas, matrix, name);
    fill(card, { label: label(name), most: this.best(name) });
    $("summary", card).ariaLabel = `What is ${label(name)}?`;
    $(".tip", card).append(explanation(name));
    button.ariaPressed = String(name === this.name);
    const at = (event) => cellAt(canvas, event, matrix.length, matrix[0].length);
    button.onclick = (event) => {
      const [layer, head] = event.target === canvas ? at(event) : app.selected;
      app.set({ score: name, layer, head });
    };
    canvas.onpointermove = (event) => {
      const [l, h] = at(event);
      app.say(`${nameOf([l, h])}: ${label(name)} ${number(matrix[l][h], 3)}`);
      this.draw(nameOf([l, h]));
    };
    return card;
  }

  list() {
    const { app, app: { history, maps: { header }, selected, state: { floor } }, name } = this;
    const matrix = Array.isArray(this.now()) ? this.now() : [];
    const heads = ranking(matrix).filter(({ value }) => name === "ablation" || value >= floor);
    const lines = new Map(this.lines().map((line) => [line.name, line.values]));
    $("#listed").textContent = `${number(floor)}: ${heads.length} of ${header.layers * header.heads} heads`;
    $("#ranked tbody").replaceChildren(...heads.slice(0, LISTED).map(({ at: [l, h], value }) => {
      const row = stamp("listing");
      const best = strongest(header, l, h);
      const start = history && name !== "ablation" ? since(history.steps, lines.get(nameOf([l, h]))) : undefined;
      const [pattern, worth] = [best?.clear ? short(best.name) : "mixed", this.now("ablation")?.[l][h]];
      fill(row, { name: nameOf([l, h]), pattern, value: number(value), since: start, ablation: number(worth, 3, "+") });
      row.ariaSelected = String(nameOf([l, h]) === nameOf(selected));
      row.onclick = () => app.set({ layer: l, head: h });
      return row;
    }));
  }
}

const explanation = (name) => $(`#what-${CSS.escape(name ?? "")}`)?.content.cloneNode(true) ?? "";

/** A square for each head; the chosen one has a frame. */
function drawMatrix({ state, selected: [l, h] }, canvas, matrix, name) {
  const [L, H] = [matrix.length, matrix[0].length];
  const [cell, signed] = [Math.max(2, Math.min(22, 132 / H, 110 / L)), name === "ablation"];
  const context = sharp(canvas, H * cell, L * cell);
  const top = signed ? Math.max(0.02, ...matrix.flat().map(Math.abs)) : 1;
  const palette = colours(signed ? "change" : state.palette, isDark());
  matrix.forEach((row, y) => row.forEach((value, x) => {
    const byte = signed ? 128 + (127 * value) / top : 255 * Math.max(0, value);
    context.fillStyle = `rgb(${palette[shade(byte, 1, "sqrt", signed)].join(" ")})`;
    context.fillRect(x * cell, y * cell, cell - 1, cell - 1);
  }));
  Object.assign(context, { strokeStyle: look.accent, lineWidth: 2 });
  if (cell > 6) context.strokeRect(h * cell, l * cell, cell - 1, cell - 1);
}
