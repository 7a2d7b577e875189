/** Lines over training, the chosen one in front. */

import { look, number, sharp } from "./dom.js";

const [LEFT, RIGHT, TOP, BOTTOM] = [44, 56, 14, 30];

export class Chart {
  constructor(canvas, { onpick, onhover }) {
    this.canvas = canvas;
    canvas.onpointermove = (event) => this.plot && onhover(this.find(event));
    canvas.onpointerleave = () => this.plot && onhover(null);
    canvas.onclick = (event) => this.plot && onpick(this.find(event));
    new ResizeObserver(() => this.plot && this.show(this.plot)).observe(canvas.parentElement);
  }

  /**
   * steps; lines: [{name, values}], a value a step or null; `front`, `hovered`: names of lines; `current`: a step;
   * axis: "log" or "linear"; bounds: the least and the largest value that must have room.
   */
  show(plot) {
    this.plot = plot;
    const { clientWidth: width, clientHeight: height } = this.canvas.parentElement;
    const { steps, lines, front, hovered, current, axis, bounds } = plot;
    const values = lines.flatMap((line) => line.values).filter((value) => value != null);
    const [low, high] = [Math.min(bounds[0], ...values), Math.max(bounds[1], ...values)];
    const bend = axis === "log" ? (step) => Math.log1p(Math.max(0, step)) : (step) => step;
    const [first, last] = [bend(steps[0]), bend(steps.at(-1))];
    this.x = (step) => LEFT + ((width - LEFT - RIGHT) * (bend(step) - first)) / (last - first || 1);
    this.y = (value) => TOP + ((height - TOP - BOTTOM) * (high - value)) / (high - low || 1);
    const context = (this.context = sharp(this.canvas, width, height));
    Object.assign(context, { font: `11px ${look.sans}`, textBaseline: "middle", lineJoin: "round" });
    this.drawAxes(low, high, width - RIGHT, height - BOTTOM);
    this.stroke([[this.x(current), TOP], [this.x(current), height - BOTTOM]], look.accent, 1);
    context.globalAlpha = Math.max(0.15, Math.min(0.55, 9 / lines.length));
    for (const line of lines) this.stroke(this.points(line), look.ink, 1.1);
    context.globalAlpha = 1;
    for (const line of lines.filter(({ name }) => name === hovered)) this.emphasise(line, look.ink);
    for (const line of lines.filter(({ name }) => name === front)) this.emphasise(line, look.accent);
  }

  points({ values }) {
    return this.plot.steps.flatMap((step, i) => (values[i] == null ? [] : [[this.x(step), this.y(values[i])]]));
  }

  emphasise(line, colour) {
    const { context } = this;
    const points = this.points(line);
    this.stroke(points, colour, 2);
    Object.assign(context, { fillStyle: colour, textAlign: "left" });
    for (const [x, y] of points) context.fillRect(x - 2, y - 2, 4, 4);
    if (points.length) context.fillText(line.name, points.at(-1)[0] + 8, points.at(-1)[1]);
  }

  stroke(points, colour, width) {
    const { context } = this;
    context.beginPath();
    for (const [x, y] of points) context.lineTo(x, y);
    Object.assign(context, { strokeStyle: colour, lineWidth: width });
    context.stroke();
  }

  drawAxes(low, high, right, bottom) {
    const { context } = this;
    const gap = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5].find((one) => (high - low) / one <= 6) ?? 10;
    Object.assign(context, { fillStyle: look.muted, textAlign: "right" });
    for (let i = Math.ceil(low / gap - 1e-9); i * gap <= high + 1e-9; i++) {
      const y = this.y(i * gap);
      this.stroke([[LEFT, y], [right, y]], look.line, 1);
      context.fillText(number(i * gap, gap < 0.1 ? 2 : gap < 1 ? 1 : 0), LEFT - 8, y);
    }
    context.textAlign = "center";
    let free = 0;
    for (const step of this.plot.steps) {
      const [x, half] = [this.x(step), context.measureText(step).width / 2];
      this.stroke([[x, bottom], [x, bottom + 5]], look.line, 1);
      if (x - half < free) continue;
      context.fillText(step, x, bottom + 15);
      free = x + half + 8;
    }
  }

  /** The point nearest to the pointer, as {name, step, value}. */
  find({ offsetX, offsetY }) {
    const all = this.plot.lines.flatMap(({ name, values }) =>
      this.plot.steps.map((step, i) => ({ name, step, value: values[i] })).filter(({ value }) => value != null));
    const away = ({ step, value }) => Math.hypot(2 * (this.x(step) - offsetX), this.y(value) - offsetY);
    return all.reduce((best, one) => (away(one) < away(best) ? one : best), all[0]);
  }
}
