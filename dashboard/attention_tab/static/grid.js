/** Many heads at once: a small map each, below it the row that is pointed at, beside it the column. */
import { $, cellAt, stamp, weight } from "./dom.js";
import { paintHead, paintLine } from "./paint.js";
import { nameOf } from "./scoring.js";

const CRISP = 96; // tokens: up to here a map is drawn larger than it is, with sharp cells
const DENSE = 8; // heads a layer: with more, there is no room for words below a map

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
      this.all.classList.toggle("dense", maps.header.heads > DENSE);
    }
    for (const cell of this.cells) this.paint(cell);
    this.point();
  }

  cell(l, h, T) {
    const { app } = this;
    const button = stamp("cell");
    const names = ["map", "pixels", "row", "column", "value", "note"];
    const parts = Object.fromEntries(names.map((name) => [name, $(`.${name}`, button)]));
    [parts.row.width, parts.column.height] = [T, T];
    parts.pixels.classList.toggle("crisp", T <= CRISP);
    $("b", button).textContent = nameOf([l, h]);
    button.onpointermove = (event) => app.hover(...cellAt(parts.map, event, T, T), [l, h]);
    button.onpointerleave = () => app.unhover();
    button.ondblclick = () => app.pin(l, h);
    button.onclick = (event) => {
      app.set({ layer: l, head: h });
      if (parts.map.contains(event.target)) app.keep(...cellAt(parts.map, event, T, T));
    };
    return { l, h, button, ...parts };
  }

  paint(cell) {
    const { maps, app } = this;
    const { l, h, button } = cell;
    const chosen = nameOf([l, h]) === nameOf(app.selected);
    const sound = maps.has(l);
    cell.note.textContent = sound ? "" : `Layer ${l} of this step is damaged: ${maps.layers[l]?.message}.`;
    cell.words = sound ? this.caption(l, h) : "";
    button.classList.toggle("damaged", !sound);
    const ariaLabel = `Layer ${l}, head ${h}: ${cell.words || cell.note.textContent}`;
    Object.assign(button, { tabIndex: chosen ? 0 : -1, ariaPressed: String(chosen), ariaLabel });
    if (sound) paintHead(cell.pixels, maps, l, h, app.lut(maps, l, h));
  }

  /** Moves the cross hairs of all heads at once, and fills their row and column. */
  point() {
    const { app, maps } = this;
    const { query, key } = app.point;
    const exact = query >= 0 && key >= 0;
    const [top, left, thick] = [query, key, 1].map((at) => (at < 0 ? -9 : at / maps.header.length));
    for (const { l, h, map, row, column, value, words } of this.cells.filter((cell) => maps.has(cell.l))) {
      const lut = app.lut(maps, l, h);
      map.style.cssText = `--row: ${top}; --column: ${left}; --thick: ${thick}`;
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
