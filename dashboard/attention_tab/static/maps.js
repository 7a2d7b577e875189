/** All heads as a grid, and the chosen one large. */
import { BigMap } from "./bigmap.js";
import { $, number, offer } from "./dom.js";
import { Grid } from "./grid.js";
import { allHeads, label, ranking, scoresOf, short, strongest } from "./scoring.js";
import { parsePins } from "./state.js";
import { showTops } from "./text.js";

const MANY = 400; // heads in the grid at most: of a model with more, the layers around the chosen one

export class MapsView {
  constructor(app) {
    Object.assign(this, { app, big: new BigMap(app) });
    this.grid = new Grid(app, $("#maps"), (l, h) => this.caption(l, h));
    $("#big").replaceWith(this.big.element);
  }

  /** The heads to draw, as [layer, head], in the order and above the floor that is asked for. */
  heads(header) {
    const { state: { order, floor } } = this.app;
    const ranked = ranking(header.scores[order] ?? []).filter(({ value }) => value >= floor);
    if (header.scores[order]) return ranked.slice(0, MANY).map(({ at }) => at);
    const room = Math.max(1, Math.floor(MANY / header.heads)); // layers
    const first = Math.max(0, Math.min(header.layers - room, this.app.choose(header)[0] - (room >> 1)));
    return allHeads(header).filter(([l]) => l >= first && l < first + room);
  }

  layers(header) {
    const shown = [...this.heads(header), ...parsePins(this.app.state.pins, header), this.app.choose(header)];
    return [...new Set(shown.map(([l]) => l))];
  }

  /** "0.62 previous", or "mixed"; only the score if heads are ordered by one. */
  caption(l, h) {
    const { maps: { header }, state: { order } } = this.app;
    if (header.scores[order]) return number(header.scores[order][l][h]);
    const best = strongest(header, l, h);
    return best?.clear ? `${number(best.value)} ${short(best.name)}` : best ? "mixed" : "";
  }

  show() {
    const { maps, maps: { header }, selected: [l, h], state: { order, floor, pins }, views } = this.app;
    const heads = this.heads(header);
    this.grid.show(maps, heads, parsePins(pins, header));
    this.big.show(maps, l, h);
    $("#maps").style.setProperty("--share", `${Math.max(0.9, Math.min(1.7, header.heads / 6))}fr`);
    const names = scoresOf(header);
    offer($("[name=order]"), [["layer", "by layer"], ...names.map((name) => [name, `by ${label(name)}`])]);
    $("[name=order]").value = header.scores[order] ? order : "layer";
    $("#least").hidden = !header.scores[order];
    const [count, all] = [heads.length, allHeads(header).length];
    const what = header.scores[order] ? `${number(floor)}:` : "drawn:";
    $("#count").textContent = count < all ? `${what} ${count} of ${all}` : "";
    const best = strongest(header, l, h);
    $("#title").textContent = `L${l}H${h}`;
    $("#name").textContent = best ? (best.clear ? "" : "mixed, nearest: ") + label(best.name) : "";
    const facts = names.map((name) => `${short(name)} ${number(header.scores[name][l][h])}`);
    const ablation = views.scores.now("ablation");
    if (ablation) facts.push(`ablation ${number(ablation[l][h], 3, "+")}`);
    $("#facts").textContent = facts.join(" · ");
    $("#pin").ariaPressed = String(pins.split(",").includes(`${l}.${h}`));
    showTops(this.app);
  }

  point() {
    this.grid.point();
    this.big.point();
    showTops(this.app);
  }
}
