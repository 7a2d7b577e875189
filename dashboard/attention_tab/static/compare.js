/** The same heads in other runs at the same step, or in this run at an earlier one; and what has changed. */

import { BigMap } from "./bigmap.js";
import { $, number, offer, stamp, weight } from "./dom.js";
import { Difference, mismatch } from "./format.js";
import { Grid } from "./grid.js";
import { nearest } from "./state.js";

const MOST = 3; // beside the run in view

export class Compare {
  panels = [];

  constructor(app) {
    Object.assign(this, { app, root: $("#compare") });
    this.grid = new Grid(app, this.root, (l, h) => `${number(100 * this.grid.maps.moved(l, h), 1)} % moved`);
    $("#against").onchange = ({ target }) => this.choose([...this.specs, target.value].slice(-MOST));
  }

  get specs() {
    return this.app.state.against.split("|").filter(Boolean);
  }

  choose(specs) {
    this.app.set({ against: specs.join("|") });
  }

  /** What there is to compare with, as [spec, words]. */
  offers() {
    const { index, place: { run, tag, step, steps } } = this.app;
    const runs = Object.keys(index).filter((one) => one !== run && index[one][tag]);
    const all = [["step:previous", "the step before"], ["step:first", "the first step"],
      ...runs.map((one) => [`run:${one}`, `run ${one}`]),
      ...steps.filter((one) => one < step).map((one) => [`step:${one}`, `step ${one}`])];
    return all.filter(([spec]) => !this.specs.includes(spec));
  }

  /** The run and step that a spec means; [] if there is none. */
  resolve(spec) {
    const { index, place: { run, tag, step, steps } } = this.app;
    const [, kind, what] = spec.match(/^(run|step):(.*)$/s) ?? [];
    if (kind === "run") return index[what]?.[tag] ? [what, nearest(index[what][tag].map(([one]) => one), step)] : [];
    const earlier = steps.filter((one) => one < step);
    const named = { previous: earlier.at(-1), first: earlier[0] };
    const found = what in named ? named[what] : earlier.find((one) => one === Number(what));
    return found === undefined ? [] : [run, found];
  }

  /** Loads what is compared with. */
  async load(maps) {
    this.others = await Promise.all(this.specs.map((spec) => this.loadOne(spec, maps)));
  }

  async loadOne(spec, maps) {
    const { cache, index, place, views } = this.app;
    const [run, step] = this.resolve(spec);
    const here = run === place.run;
    const name = run === undefined ? spec.replace(":", " ") : here ? `step ${step}` : `${run}, step ${step}`;
    try {
      if (run === undefined) throw new Error("is not there");
      const other = await cache.maps(run, place.tag, index[run][place.tag].find(([one]) => one === step));
      const odd = mismatch(maps.header, other.header);
      if (odd) throw new Error(`has another shape: ${odd}`);
      const difference = here ? new Difference(other, maps) : new Difference(maps, other);
      await Promise.all(views.maps.layers(maps.header).map((l) => difference.load(l)));
      const alike = maps.header.tokens.every((token, i) => token === other.header.tokens[i]);
      const title = here ? `step ${place.step} − step ${step}` : `${run} − ${place.run}`;
      return { spec, name, title, difference, other, problem: alike ? "" : "has other tokens, compared by position" };
    } catch (error) {
      return { spec, name, problem: error.message };
    }
  }

  show() {
    const { maps, place: { run, step }, selected, views } = this.app;
    const here = `${run}, step ${step}`;
    offer($("#against"), [["", "add …"], ...this.offers()]);
    $("#against").value = "";
    $(".chips", this.root).replaceChildren(`${here}, against`, ...this.others.map((one) => this.chip(one)));
    const sound = this.others.filter((one) => one.difference);
    $(".heads", this.root).hidden = !sound.length;
    if (sound.length) this.grid.show(sound[0].difference, views.maps.heads(maps.header));
    $(".heads p", this.root).textContent = sound[0]?.title;
    const seen = sound.flatMap((one) => [[one.name, one.other], [one.title, one.difference]]);
    if (sound.length) seen.unshift([here, maps]);
    while (this.panels.length < seen.length) this.panels.push(this.panel());
    this.shown = this.panels.slice(0, seen.length);
    $(".panels", this.root).replaceChildren(...this.shown.map((panel) => panel.element));
    this.shown.forEach(({ element, map }, i) => {
      $("h3", element).textContent = seen[i][0];
      map.show(seen[i][1], ...selected);
    });
    this.point();
  }

  chip({ spec, name, problem }) {
    const chip = stamp("chip");
    $("span", chip).textContent = name;
    $("i", chip).textContent = problem;
    $("button", chip).ariaLabel = `Without ${name}`;
    $("button", chip).onclick = () => this.choose(this.specs.filter((one) => one !== spec));
    return chip;
  }

  panel() {
    const [map, element] = [new BigMap(this.app, { labels: 66, scale: 56 }), stamp("panel")];
    element.append(map.element);
    return { map, element };
  }

  point() {
    const { query, key } = this.app.point;
    if (this.shown.length) this.grid.point();
    for (const { map, map: { maps, l, h }, element } of this.shown) {
      map.point();
      const seen = query >= 0 && key >= 0 && maps.has(l) && maps.visible(query, key);
      $(".value", element).textContent = seen ? weight(maps.value(l, h, query, key)) : "";
    }
  }
}
