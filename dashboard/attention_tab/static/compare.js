/** The same heads in other runs at the same step, or in this run at an earlier one; and what has changed. */
import { BigMap } from "./bigmap.js";
import { $, fill, number, offer, stamp, weight } from "./dom.js";
import { Difference } from "./format.js";
import { Grid } from "./grid.js";
import { nearest } from "./state.js";

const MOST = 3; // beside the run in view

export class Compare {
  panels = [];
  others = []; // what is compared with, loaded
  shown = []; // the panels in use

  constructor(app) {
    Object.assign(this, { app, root: $("#compare") });
    this.grid = new Grid(app, this.root, (l, h) => `${number(100 * this.grid.maps.moved(l, h), 1)} %`);
    $("#against").onchange = ({ target }) => this.choose([...this.specs, target.value].slice(-MOST));
  }

  get specs() { return this.app.state.against.split("|").filter(Boolean); }
  choose(specs) { this.app.put("against", specs.join("|")); }

  /** What there is to compare with: a spec as the state has it, words, and what it means. */
  targets() {
    const { index, place: { run, tag, step, steps } } = this.app;
    const others = Object.keys(index).filter((one) => one !== run && index[one][tag]);
    const earlier = steps.filter((one) => one < step);
    const all = [
      { spec: "step:previous", words: "the step before", run, step: earlier.at(-1) },
      { spec: "step:first", words: "the first step", run, step: earlier[0] },
      ...others.map((one) => ({ spec: `run:${one}`, words: `run ${one}`, run: one,
        step: nearest(index[one][tag].map(([at]) => at), step) })),
      ...earlier.map((one) => ({ spec: `step:${one}`, words: `step ${one}`, run, step: one })),
    ];
    return all.filter((one) => one.step !== undefined);
  }

  async load(maps) {
    const targets = this.targets();
    this.others = await Promise.all(this.specs.map(async (spec) => {
      const target = targets.find((one) => one.spec === spec) ?? { spec, words: spec.replace(":", " ") };
      return { ...target, ...await this.loadOne(target, maps).catch((error) => ({ problem: error.message })) };
    }));
  }

  async loadOne({ run, step }, maps) {
    const { cache, index, place, views } = this.app;
    if (run === undefined) throw new Error("is not there");
    const other = await cache.maps(run, place.tag, index[run][place.tag].find(([at]) => at === step));
    const here = run === place.run;
    const difference = here ? new Difference(other, maps) : new Difference(maps, other);
    await Promise.all(views.maps.layers(maps.header).map((l) => difference.load(l)));
    const alike = maps.header.tokens.every((token, i) => token === other.header.tokens[i]);
    const [words, title] = here ? [`step ${step}`, `step ${place.step} − step ${step}`]
      : [`${run}, step ${step}`, `${run} − ${place.run}`];
    return { words, title, difference, other, problem: alike ? "" : "has other tokens, compared by position" };
  }

  show() {
    const { maps, place: { run, step }, selected, views } = this.app;
    const here = `${run}, step ${step}`;
    const free = this.targets().filter(({ spec }) => !this.specs.includes(spec));
    offer($("#against"), [["", "add …"], ...free.map(({ spec, words }) => [spec, words])]);
    $("#against").value = "";
    $(".chips", this.root).replaceChildren(`${here}, against`, ...this.others.map((one) => this.chip(one)));
    const sound = this.others.filter((one) => one.difference);
    $(".heads", this.root).hidden = !sound.length;
    if (sound.length) this.grid.show(sound[0].difference, views.maps.heads(maps.header));
    $(".heads p", this.root).textContent = `${sound[0]?.title} · below a head: how much of its attention has moved`;
    const seen = sound.flatMap((one) => [[one.words, one.other], [one.title, one.difference]]);
    this.shown = [[here, maps], ...seen].map(([title, shown], i) => {
      const { map, element } = (this.panels[i] ??= { map: new BigMap(this.app), element: stamp("panel") });
      fill(element, { title });
      element.append(map.element);
      return { map, element, maps: shown };
    });
    $(".panels", this.root).replaceChildren(...this.shown.map(({ element }) => element));
    for (const { map, maps: shown } of this.shown) map.show(shown, ...selected);
    this.point();
  }

  chip({ spec, words, problem }) {
    const chip = stamp("chip");
    fill(chip, { words, problem });
    $("button", chip).ariaLabel = `Without ${words}`;
    $("button", chip).onclick = () => this.choose(this.specs.filter((one) => one !== spec));
    return chip;
  }

  point() {
    const { query, key } = this.app.point;
    if (this.shown.length > 1) this.grid.point();
    for (const { map, maps, map: { l, h }, element } of this.shown) {
      map.point();
      const seen = query >= 0 && key >= 0 && maps.has(l) && maps.visible(query, key);
      fill(element, { value: seen ? weight(maps.value(l, h, query, key)) : "" });
    }
  }
}
