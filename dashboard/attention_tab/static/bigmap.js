/** One head, large: tokens beside its rows and below its columns, and the scale of its colours. */

import { $, hatch, look, sharp, shorten, stamp, weight } from "./dom.js";
import { isDark } from "./host.js";
import { paintWindow, scratch } from "./paint.js";
import { colours, shade } from "./palette.js";

const LINE = 11; // pixels that a label needs
const MARKS = [0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75];

export class BigMap {
  from = [0, 0]; // the first row and column in view
  zoomed = 0; // how many are in view; 0 = all

  /** `labels`, `scale`: pixels for the tokens, and for the scale. */
  constructor(app, { labels = 74, scale = 46 } = {}) {
    Object.assign(this, { app, labels, scale, element: stamp("bigmap") });
    [this.base, this.over, this.note] = [".base", ".over", ".note"].map((part) => $(part, this.element));
    new ResizeObserver(() => this.draw()).observe(this.element);
    this.over.onpointermove = (event) => app.hover(...this.at(event));
    this.over.onpointerleave = () => app.unhover();
    this.over.onclick = (event) => app.keep(...this.at(event));
    this.over.ondblclick = (event) => this.zoom(0.5, this.at(event));
    this.over.onwheel = (event) => {
      if (!this.zoomed) return;
      event.preventDefault();
      const by = event.shiftKey ? [event.deltaX, event.deltaY] : [event.deltaY, event.deltaX];
      this.moveTo(this.from.map((place, i) => place + Math.sign(by[i]) * Math.ceil(Math.abs(by[i]) / this.unit / 4)));
    };
  }

  get count() {
    return this.zoomed || this.maps.header.length;
  }

  /** [query, key] under the pointer; of a row's label or a column's, the other one is −1. */
  at({ offsetX, offsetY }) {
    const inside = (pixels) => pixels >= 0 && pixels < this.side;
    return [offsetY, offsetX - this.labels].map((at, i) => (inside(at) ? Math.floor(at / this.unit) + this.from[i] : -1));
  }

  zoom(factor, around = [this.app.point.query, this.app.point.key]) {
    const { count, from } = this;
    const T = this.maps.header.length;
    const next = Math.max(Math.min(8, T), Math.min(T, Math.round(count * factor)));
    this.zoomed = next < T ? next : 0;
    this.moveTo(around.map((at, i) => Math.round((at < 0 ? from[i] + count / 2 : at) - next / 2)));
  }

  moveTo(from) {
    const most = this.maps.header.length - this.count;
    this.from = from.map((place) => Math.max(0, Math.min(most, place)));
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
    this.side = Math.max(60, width - this.labels - this.scale);
    this.unit = this.side / count;
    const context = sharp(this.base, width, this.side + this.labels);
    hatch(context, this.labels, 0, this.side);
    this.note.textContent = maps.has(l) ? "" : `Layer ${l} of this step is damaged: ${maps.layers[l]?.message}.`;
    if (maps.has(l)) this.paint(context);
    const every = Math.ceil(LINE / this.unit);
    for (let i = every >> 1; i < count; i += every) {
      for (const way of [0, 1]) this.label(context, way, i + this.from[way], look.muted);
    }
    this.drawScale(context);
    this.base.ariaLabel = `Attention of layer ${l}, head ${h}: ${maps.header.length} tokens`;
    this.point();
  }

  paint(context) {
    const { count, side, maps, l, h } = this;
    const factor = Math.max(1, Math.floor(count / (side * (window.devicePixelRatio || 1))));
    const n = Math.ceil(count / factor);
    const image = scratch(n, n);
    paintWindow(image.pixels, maps, l, h, this.app.lut(maps, l, h), this.from, count, factor);
    const picture = new OffscreenCanvas(n, n);
    picture.getContext("2d").putImageData(image, 0, 0);
    context.imageSmoothingEnabled = false;
    context.drawImage(picture, this.labels, 0, side, side);
  }

  /** A token beside its row (`way` 0) or below its column (1); on `ground` it covers what is there. */
  label(context, way, i, colour, ground) {
    const place = i - this.from[way];
    if (place < 0 || place >= this.count) return;
    const middle = Math.max(6, Math.min(this.side - 6, (place + 0.5) * this.unit));
    context.save();
    context.translate(this.labels + (way ? middle : -6), way ? this.side + 6 : middle);
    context.rotate(way ? -Math.PI / 2 : 0);
    context.fillStyle = ground;
    if (ground) context.fillRect(6 - this.labels, -7, this.labels - 3, 14);
    context.font = `${ground ? "bold " : ""}10px ${look.mono}`;
    Object.assign(context, { fillStyle: colour, textAlign: "right", textBaseline: "middle" });
    context.fillText(shorten(this.maps.header.tokens[i], 11), 0, 0.5);
    context.restore();
  }

  drawScale(context) {
    const { maps, side, l, h, app, app: { state: { palette, curve } } } = this;
    const x = this.labels + side + 10;
    colours(maps.signed ? "change" : palette, isDark()).forEach(([r, g, b], i) => {
      context.fillStyle = `rgb(${r} ${g} ${b})`;
      context.fillRect(x, side * (1 - (i + 1) / 256), 9, side / 256 + 0.7);
    });
    Object.assign(context, { fillStyle: look.muted, font: `10px ${look.sans}`, textBaseline: "middle" });
    const top = maps.has(l) ? app.top(maps, l, h) : 1;
    const marks = [[top, weight(top)], ...MARKS.filter((mark) => mark < top * 0.9).map((mark) => [mark, `${mark}`])];
    const both = marks.flatMap(([mark, words]) => [[mark, words], ...(maps.signed ? [[-mark, `−${words}`]] : [])]);
    const taken = [];
    for (const [mark, words] of both.filter(([, one]) => one !== "−0")) {
      const root = Math.sign(mark) * Math.sqrt(Math.abs(mark));
      const place = shade(maps.signed ? 128 + 127 * root : 255 * root, top, curve, maps.signed);
      const y = Math.max(6, Math.min(side - 6, side * (1 - place / 255)));
      if (taken.every((other) => Math.abs(other - y) >= 12)) context.fillText(words, x + 13, y, taken.push(y) && 40);
    }
  }

  /** The cross hairs, and the names of what they are on. */
  point() {
    if (!this.maps || !this.side) return;
    const context = sharp(this.over, this.labels + this.side + this.scale, this.side + this.labels);
    const thick = Math.max(this.unit, 2);
    [this.app.point.query, this.app.point.key].forEach((at, way) => {
      const place = (at - this.from[way]) * this.unit;
      if (at < 0 || place < 0 || place >= this.side) return;
      const [x, y, w, h] = way ? [place, 0, thick, this.side] : [0, place, this.side, thick];
      for (const [grow, colour] of [[1.5, look.halo], [0.5, look.cross]]) {
        context.strokeStyle = colour;
        context.strokeRect(this.labels + x - grow, y - grow, w + 2 * grow, h + 2 * grow);
      }
      this.label(context, way, at, look.accent, look.surface);
    });
  }
}
