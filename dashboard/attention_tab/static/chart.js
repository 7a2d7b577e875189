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

  /** lines: [{name, at, values}], a value a step or null; bounds: the least and most that must have room. */
  show(plot) {
    this.plot = plot;
    const { clientWidth: width, clientHeight: height } = this.canvas.parentElement;
    const { steps, lines, front, hovered, current, axis, bounds } = plot;
    const values = [...bounds, ...lines.flatMap((line) => line.values).filter((value) => value != null)];
    const [low, high] = [Math.min(...values), Math.max(...values)];
    const bend = axis === "log" ? (step) => Math.log1p(Math.max(0, step)) : (step) => step;
    const [first, last] = [bend(steps[0]), bend(steps.at(-1))];
    this.x = (step) => LEFT + ((width - LEFT - RIGHT) * (bend(step) - first)) / (last - first || 1);
    this.y = (value) => TOP + ((height - TOP - BOTTOM) * (high - value)) / (high - low || 1);
    this.context = sharp(this.canvas, width, height);
    Object.assign(this.context, { font: `11px ${look.sans}`, textBaseline: "middle", lineJoin: "round" });
    this.drawAxes(low, high, width - RIGHT, height - BOTTOM);
    this.stroke([[this.x(current), TOP], [this.x(current), height - BOTTOM]], look.accent, 1);
    this.context.globalAlpha = Math.max(0.15, Math.min(0.55, 9 / lines.length));
    for (const line of lines) this.line(line, look.ink, 1.1);
    this.context.globalAlpha = 1;
    for (const line of lines) if (line.name === hovered) this.line(line, look.ink, 2);
    for (const line of lines) if (line.name === front) this.line(line, look.accent, 2);
  }

  /** A line; one that is wide with its points and its name. */
  line({ name, values }, colour, width) {
    const points = this.plot.steps.flatMap((step, i) => (values[i] == null ? [] : [[this.x(step), this.y(values[i])]]));
    this.stroke(points, colour, width);
    Object.assign(this.context, { fillStyle: colour, textAlign: "left" });
    if (width === 2) for (const [x, y] of points) this.context.fillRect(x - 2, y - 2, 4, 4);
    if (width === 2) for (const [x, y] of points.slice(-1)) this.context.fillText(name, x + 8, y);
  }

  stroke(points, colour, width) {
    this.context.beginPath();
    for (const [x, y] of points) this.context.lineTo(x, y);
    Object.assign(this.context, { strokeStyle: colour, lineWidth: width });
    this.context.stroke();
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
    const taken = [];
    for (const step of [this.plot.steps.at(-1), ...this.plot.steps]) {
      const [x, half] = [this.x(step), context.measureText(step).width / 2 + 4];
      this.stroke([[x, bottom], [x, bottom + 5]], look.line, 1);
      if (taken.some(([at, room]) => Math.abs(at - x) < room + half)) continue;
      context.fillText(step, x, bottom + 15);
      taken.push([x, half]);
    }
  }

  /** The point nearest to the pointer, as {name, at, step, value}. */
  find({ offsetX, offsetY }) {
    const { lines, steps } = this.plot;
    const all = lines.flatMap((line) => line.values.map((value, i) => ({ ...line, step: steps[i], value })));
    const away = ({ step, value }) => Math.hypot(2 * (this.x(step) - offsetX), this.y(value) - offsetY);
    return all.filter(({ value }) => value != null).reduce((best, one) => (away(one) < away(best) ? one : best));
  }
}
