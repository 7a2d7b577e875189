/** One head, large: tokens beside its rows and below its columns, and the scale of its colours. */
import { $, look, sharp, shorten, stamp, weight } from "./dom.js";
import { isDark } from "./host.js";
import { paintWindow, scratch } from "./paint.js";
import { colours, shade } from "./palette.js";

const [LINE, LABELS, SCALE] = [11, 74, 56]; // pixels for a token's label: across, along; for the scale
const MARKS = [0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75];

export class BigMap {
  from = [0, 0]; // the first row and column in view
  zoomed = 0; // how many are in view; 0 = all

  constructor(app) {
    Object.assign(this, { app, element: stamp("bigmap") });
    for (const part of ["base", "over", "note", "ground", "beside", "below"]) this[part] = $(`.${part}`, this.element);
    new ResizeObserver(() => this.draw()).observe(this.element);
    this.over.onpointermove = (event) => app.hover(...this.at(event));
    this.over.onpointerleave = () => app.unhover();
    this.over.onclick = (event) => app.keep(...this.at(event));
    this.over.ondblclick = (event) => this.zoom(0.5, this.at(event));
    this.over.onwheel = (event) => {
      if (this.zoomed) event.preventDefault();
      this.moveTo([event.deltaY, event.deltaX].map((by, i) => this.from[i] + Math.round(by / this.unit / 2)));
    };
  }

  get count() { return this.zoomed || this.maps.header.length; }
  /** [query, key] under the pointer; of a row's label or a column's, the other one is −1. */
  at({ offsetX, offsetY }) {
    const place = (at, i) => (at >= 0 && at < this.side ? Math.floor(at / this.unit) + this.from[i] : -1);
    return [place(offsetY, 0), place(offsetX - LABELS, 1)];
  }

  zoom(factor, around = [this.app.point.query, this.app.point.key]) {
    const { count, from, maps: { header: { length: T } } } = this;
    const next = Math.max(Math.min(8, T), Math.min(T, Math.round(count * factor)));
    this.zoomed = next < T ? next : 0;
    this.moveTo(around.map((at, i) => Math.round((at < 0 ? from[i] + count / 2 : at) - next / 2)));
  }

  moveTo(from) {
    this.from = from.map((place) => Math.max(0, Math.min(this.maps.header.length - this.count, place)));
    this.draw();
  }

  show(maps, l, h) {
    if (this.maps?.header.length !== maps.header.length) Object.assign(this, { from: [0, 0], zoomed: 0 });
    Object.assign(this, { maps, l, h });
    this.draw();
  }

  draw() {
    const width = this.element.clientWidth;
    if (!this.maps || !width) return;
    const { maps, l, h, count } = this;
    this.side = Math.max(60, width - LABELS - SCALE);
    this.unit = this.side / count;
    this.ground.style.cssText = `left: ${LABELS}px; width: ${this.side}px; height: ${this.side}px`;
    this.note.textContent = maps.has(l) ? "" : `Layer ${l} of this step is damaged: ${maps.layers[l]?.message}.`;
    const context = sharp(this.base, width, this.side + LABELS);
    context.font = `10px ${look.mono}`;
    if (maps.has(l)) this.paint(context);
    const every = Math.ceil(LINE / this.unit);
    for (let i = every >> 1; i < count; i += every) {
      for (const way of [0, 1]) this.label(context, way, i + this.from[way]);
    }
    this.drawScale(context);
    this.base.ariaLabel = `Attention of layer ${l}, head ${h}: ${maps.header.length} tokens`;
    this.point();
  }

  paint(context) {
    const { count, side, maps, l, h } = this;
    const factor = Math.max(1, Math.floor(count / (side * (window.devicePixelRatio || 1))));
    const n = Math.ceil(count / factor);
    const [image, picture] = [scratch(n, n), new OffscreenCanvas(n, n)];
    paintWindow(image.pixels, maps, l, h, this.app.lut(maps, l, h), this.from, count, factor);
    picture.getContext("2d").putImageData(image, 0, 0);
    context.imageSmoothingEnabled = false;
    context.drawImage(picture, LABELS, 0, side, side);
  }

  /** A token beside its row (`way` 0) or below its column (1). */
  label(context, way, i) {
    const middle = (i - this.from[way] + 0.5) * this.unit;
    context.save();
    context.translate(LABELS + (way ? middle : -6), way ? this.side + 6 : middle);
    context.rotate(way ? -Math.PI / 2 : 0);
    Object.assign(context, { fillStyle: look.muted, textAlign: "right", textBaseline: "middle" });
    context.fillText(shorten(this.maps.header.tokens[i], 10), 0, 0.5);
    context.restore();
  }

  drawScale(context) {
    const { maps, side, l, h, app, app: { state: { palette, curve } } } = this;
    const x = LABELS + side + 10;
    colours(maps.signed ? "change" : palette, isDark()).forEach(([r, g, b], i) => {
      context.fillStyle = `rgb(${r} ${g} ${b})`;
      context.fillRect(x, side * (1 - (i + 1) / 256), 9, side / 256 + 0.7);
    });
    Object.assign(context, { fillStyle: look.muted, font: `10px ${look.sans}`, textBaseline: "middle" });
    const top = maps.has(l) ? app.top(maps, l, h) : 1;
    const marks = [top, ...MARKS.filter((mark) => mark < top * 0.9)];
    const taken = [];
    for (const mark of maps.signed ? marks.flatMap((one) => [one, -one]) : marks) {
      const root = Math.sign(mark) * Math.sqrt(Math.abs(mark));
      const place = shade(maps.signed ? 128 + 127 * root : 255 * root, top, curve, maps.signed);
      const y = Math.max(6, Math.min(side - 6, side * (1 - place / 255)));
      if (taken.some((other) => Math.abs(other - y) < 12)) continue;
      taken.push(y);
      context.fillText(Math.abs(mark) === top ? weight(mark) : `${mark}`.replace("-", "−"), x + 13, y);
    }
  }

  /** The cross hairs, and the names of what they are on (text on a canvas would cost a frame its style). */
  point() {
    if (!this.maps || !this.side) return;
    const { app: { point }, side, unit } = this;
    const [context, thick] = [sharp(this.over, LABELS + side + SCALE, side + LABELS), Math.max(unit, 2)];
    [point.query, point.key].forEach((at, way) => {
      const [name, place] = [way ? this.below : this.beside, (at - this.from[way]) * unit];
      name.hidden = at < 0 || place < 0 || place >= side;
      if (name.hidden) return;
      name.textContent = shorten(this.maps.header.tokens[at], 10);
      const middle = place + unit / 2;
      name.style.cssText = way ? `left: ${LABELS + middle}px; top: ${side + 3}px; height: ${LABELS - 4}px`
        : `top: ${middle}px; width: ${LABELS - 4}px`;
      const [x, y, w, h] = way ? [place, 0, thick, side] : [0, place, side, thick];
      for (const [grow, colour] of [[1.5, look.halo], [0.5, look.cross]]) {
        context.strokeStyle = colour;
        context.strokeRect(LABELS + x - grow, y - grow, w + 2 * grow, h + 2 * grow);
      }
    });
  }
}
