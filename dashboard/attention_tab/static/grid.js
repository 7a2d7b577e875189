/** Many heads at once: a small map each, below it the row that is pointed at, beside it the column. */

import { $, stamp, weight } from "./dom.js";
import { paintHead, paintLine } from "./paint.js";

const CRISP = 96; // tokens: up to here a map is drawn larger than it is, with sharp cells

export class Grid {
  cells = [];

  /** `caption(l, h)`: the words below a map. */
  constructor(app, root, caption) {
    Object.assign(this, { app, caption, all: $(".all", root), pinned: $(".pinned", root) });
  }

  /** Paints `heads`, [[layer, head], …], after `pins`. */
  show(maps, heads, pins = []) {
    this.maps = maps;
    const layout = JSON.stringify([maps.header.length, heads, pins]);
    if (layout !== this.layout) {
      this.layout = layout;
      this.cells = [...pins, ...heads].map(([l, h]) => this.cell(l, h, maps.header.length));
      const buttons = this.cells.map((cell) => cell.button);
      this.pinned?.replaceChildren(...buttons.slice(0, pins.length));
      this.all.replaceChildren(...buttons.slice(pins.length));
      this.all.style.setProperty("--heads", maps.header.heads);
    }
    for (const cell of this.cells) this.paint(cell);
    this.point();
  }

  cell(l, h, T) {
    const { app } = this;
    const button = stamp("cell");
    const parts = ["map", "pixels", "row", "column", "value", "note"].map((name) => [name, $(`.${name}`, button)]);
    const { map, pixels, row, column, ...words } = Object.fromEntries(parts);
    [row.width, column.height] = [T, T];
    pixels.classList.toggle("crisp", T <= CRISP);
    $("b", button).textContent = `L${l}H${h}`;
    const at = ({ clientX, clientY }) => {
      const { left, top, width, height } = map.getBoundingClientRect();
      const place = (share) => Math.max(0, Math.min(T - 1, Math.floor(share * T)));
      return [place((clientY - top) / height), place((clientX - left) / width)];
    };
    button.onpointermove = (event) => app.hover(...at(event), [l, h]);
    button.onpointerleave = () => app.unhover();
    button.ondblclick = () => app.pin(l, h);
    button.onclick = (event) => {
      app.set({ layer: l, head: h });
      if (map.contains(event.target)) app.keep(...at(event));
    };
    return { l, h, button, pixels, row, column, ...words };
  }

  paint(cell) {
    const { maps, app: { selected } } = this;
    const { l, h, button } = cell;
    const chosen = l === selected[0] && h === selected[1];
    const sound = maps.has(l);
    cell.note.textContent = sound ? "" : `Layer ${l} of this step is damaged: ${maps.layers[l]?.message}.`;
    cell.words = sound ? this.caption(l, h) : "";
    button.classList.toggle("damaged", !sound);
    button.tabIndex = chosen ? 0 : -1;
    button.ariaPressed = String(chosen);
    button.ariaLabel = `Layer ${l}, head ${h}: ${cell.words || cell.note.textContent}`;
    if (sound) paintHead(cell.pixels, maps, l, h, this.app.lut(maps, l, h));
  }

  /** Moves the cross hairs of all heads at once, and fills their row and column. */
  point() {
    const { app, maps } = this;
    const { query, key } = app.point;
    for (const [name, value] of [["row", query], ["column", key], ["thick", 1]]) {
      for (const grid of [this.all, this.pinned]) {
        grid?.style.setProperty(`--${name}`, value >= 0 ? value / maps.header.length : -9);
      }
    }
    const exact = query >= 0 && key >= 0;
    for (const { l, h, row, column, value, words } of this.cells.filter((cell) => maps.has(cell.l))) {
      const lut = app.lut(maps, l, h);
      row.hidden = query < 0;
      column.hidden = key < 0;
      if (query >= 0) paintLine(row, maps, l, h, lut, query, -1);
      if (key >= 0) paintLine(column, maps, l, h, lut, -1, key);
      const seen = () => (maps.visible(query, key) ? weight(maps.value(l, h, query, key)) : "future");
      value.textContent = exact ? seen() : words;
      value.classList.toggle("exact", exact);
    }
  }
}
