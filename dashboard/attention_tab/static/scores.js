/** Every score of every head: now, as a matrix, and over training, as lines. */

import { Chart } from "./chart.js";
import { $, look, number, sharp, stamp } from "./dom.js";
import { isDark } from "./host.js";
import { colours, shade } from "./palette.js";
import { allHeads, label, ranking, scoresOf, short, since, strongest } from "./scoring.js";

const LISTED = 64; // heads
const BOUNDS = { ablation: [-0.02, 0.05], loss: [0, 1], gain: [0, 0.5] }; // what a chart has room for at least

export class Scores {
  constructor(app) {
    this.app = app;
    this.chart = new Chart($(".chart canvas"), {
      onpick: ({ name, step }) => app.set({ step, ...headOf(name) }),
      onhover: (at) => {
        app.say(at && `${at.name}, ${label(this.name)} at step ${at.step}: ${number(at.value, 3)}. Click to go there.`);
        this.draw(at?.name);
      },
    });
  }

  /** The scores that there are. */
  get names() {
    const { history, maps } = this.app;
    const there = (name) => history?.headers.some((header) => header?.[name] != null);
    return [...scoresOf(maps.header), ...["ablation", "gain", "loss"].filter(there)];
  }

  /** The score in view. */
  get name() {
    return this.names.includes(this.app.state.score) ? this.app.state.score : this.names[0];
  }

  /** What a score is at the step in view, or, as of ablation, was when last measured: (L, H) or one number. */
  now(name = this.name) {
    const { maps: { header }, history, place: { step } } = this.app;
    const past = history?.headers.slice(0, history.steps.indexOf(step) + 1);
    return header.scores[name] ?? (past ? past.findLast((one) => one?.[name] != null)?.[name] : header[name]);
  }

  show() {
    const { name } = this;
    $("#cards").replaceChildren(...this.names.map((one) => this.card(one)));
    $("#score-name").textContent = name ? label(name) : "No scores were recorded.";
    $("#score-says").replaceChildren(explanation(name));
    this.list();
    this.draw();
  }

  draw(hovered) {
    const { app: { history, selected: [l, h], place: { step }, state: { axis } }, name } = this;
    if (!history || !name) return;
    const front = Array.isArray(this.now()) ? `L${l}H${h}` : label(name);
    const bounds = BOUNDS[name] ?? [0, 1];
    this.chart.show({ steps: history.steps, lines: this.lines(), front, hovered, current: step, axis, bounds });
    this.chart.canvas.ariaLabel = `${label(name)} at ${history.steps.length} steps; now ${this.best(name)}`;
  }

  /** A line for each head, or one if the score is a single number. */
  lines() {
    const { name, app: { history, maps } } = this;
    const all = history?.headers.map((header) => header?.scores[name] ?? header?.[name] ?? null) ?? [];
    if (!Array.isArray(this.now())) return [{ name: label(name), values: all }];
    return allHeads(maps.header).map(([l, h]) => (
      { name: `L${l}H${h}`, values: all.map((matrix) => matrix?.[l]?.[h] ?? null) }));
  }

  /** The most of a score, in words. */
  best(name) {
    const now = this.now(name);
    const [{ at, value }] = Array.isArray(now) ? ranking(now) : [{ value: now }];
    return at ? `most: L${at[0]}H${at[1]} ${number(value)}` : `${number(value)} nats a token`;
  }

  card(name) {
    const { app } = this;
    const card = stamp("score");
    const [button, canvas] = [$("button", card), $(".matrix", card)];
    const matrix = this.now(name);
    canvas.hidden = !Array.isArray(matrix);
    if (!canvas.hidden) drawMatrix(app, canvas, matrix, name);
    $(".label", card).textContent = label(name);
    $(".most", card).textContent = this.best(name);
    $("summary", card).ariaLabel = `What is ${label(name)}?`;
    $(".tip", card).append(explanation(name));
    button.ariaPressed = String(name === this.name);
    button.onclick = ({ target, offsetX, offsetY }) => {
      const [l, h] = target === canvas ? headAt(canvas, matrix, offsetX, offsetY) : app.selected;
      app.set({ score: name, layer: l, head: h });
    };
    canvas.onpointermove = ({ offsetX, offsetY }) => {
      const [l, h] = headAt(canvas, matrix, offsetX, offsetY);
      app.say(`L${l}H${h}: ${label(name)} ${number(matrix[l][h], 3)}`);
      if (name === this.name) this.draw(`L${l}H${h}`);
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
      const start = history && name !== "ablation" ? since(history.steps, lines.get(`L${l}H${h}`)) : "";
      const words = [best?.clear ? short(best.name) : "mixed", number(value), start ?? "",
        number(this.now("ablation")?.[l][h], 3, "+")];
      words.forEach((word, i) => (row.cells[i + 1].textContent = word));
      $("button", row).textContent = `L${l}H${h}`;
      row.ariaSelected = String(l === selected[0] && h === selected[1]);
      row.onclick = () => app.set({ layer: l, head: h });
      return row;
    }));
  }
}

const explanation = (name) => $(`#what-${CSS.escape(name ?? "")}`)?.content.cloneNode(true) ?? "";

function headOf(name) {
  const [, layer, head] = name.match(/^L(\d+)H(\d+)$/) ?? [];
  return layer ? { layer: Number(layer), head: Number(head) } : {};
}

function headAt({ clientWidth, clientHeight }, matrix, x, y) {
  const place = (share, count) => Math.max(0, Math.min(count - 1, Math.floor(share * count)));
  return [place(y / clientHeight, matrix.length), place(x / clientWidth, matrix[0].length)];
}

/** A square for each head; the chosen one has a frame. */
function drawMatrix({ state, selected: [l, h] }, canvas, matrix, name) {
  const [L, H] = [matrix.length, matrix[0].length];
  const cell = Math.max(2, Math.min(22, 132 / H, 110 / L));
  const context = sharp(canvas, H * cell, L * cell);
  const signed = name === "ablation";
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
