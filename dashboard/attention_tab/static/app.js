/** What there is to see, what is in view, and who has to draw it again. */

import { Cache } from "./cache.js";
import { Compare } from "./compare.js";
import { $, offer, weight } from "./dom.js";
import { isDark, isShown, readHash, writeHash } from "./host.js";
import { MapsView } from "./maps.js";
import { table } from "./palette.js";
import { savePicture } from "./picture.js";
import { mostTelling } from "./scoring.js";
import { Scores } from "./scores.js";
import { CHOICES, locate, parse, serialise, togglePin } from "./state.js";
import { Text } from "./text.js";

const BEAT = 450; // ms a step while playing
const POLL = 5000; // ms between looks for a new step: TensorBoard reads its files as often

export class App {
  state = parse(readHash());
  index = {}; // {run: {tag: [[step, wall time], …]}}
  maps = null; // what is in view
  history = null; // the scores of all steps
  pointed = null; // {query, key, head}: what the pointer is on
  cache = new Cache();
  views = { maps: new MapsView(this), scores: new Scores(this), compare: new Compare(this) };
  text = new Text(this);

  /** {run, tag, points, steps, step}: what the state means, given what there is. */
  get place() {
    return locate(this.index, this.state);
  }

  /** [layer, head] of the large map. */
  get selected() {
    const { state: { layer, head }, maps: { header } } = this;
    const exists = layer >= 0 && layer < header.layers && head >= 0 && head < header.heads;
    return exists ? [layer, head] : mostTelling(header);
  }

  /** [layer, head] that the text and the sentence speak of. */
  get focus() {
    return this.pointed?.head ?? this.selected;
  }

  /** The token that looks and the token looked at: those under the pointer, else those kept; −1 = none. */
  get point() {
    const { state: { query, key }, maps: { header: { length } } } = this;
    return this.pointed ?? { query: query === -1 ? length - 1 : Math.min(query, length - 1), key: Math.min(key, length - 1) };
  }

  /** The weight at which colour ends. */
  top(maps, l, h) {
    return this.state.range === "each" ? maps.top(l, h) : maps.sharedTop();
  }

  /** The pixel for each byte of a head. */
  lut(maps, l, h) {
    const { palette, curve } = this.state;
    return table(maps.signed ? "change" : palette, isDark(), this.top(maps, l, h), curve, maps.signed);
  }

  // What a person does.

  set(patch) {
    const changed = Object.keys(patch).filter((key) => this.state[key] !== patch[key]);
    Object.assign(this.state, patch);
    this.writeAddress();
    if (changed.some((key) => key !== "query" && key !== "key")) this.refresh();
    else if (changed.length) this.drawPoint();
  }

  put(key, value) {
    this.set({ [key]: value });
  }

  writeAddress() {
    writeHash(serialise(this.state));
  }

  next(key) {
    this.set({ [key]: CHOICES[key][(CHOICES[key].indexOf(this.state[key]) + 1) % CHOICES[key].length] });
  }

  hover(query, key, head) {
    this.pointed = { query, key, head };
    this.drawPoint();
  }

  unhover() {
    this.pointed = null;
    this.drawPoint();
  }

  keep(query, key) {
    this.set({ query: query < 0 ? -2 : query, key });
  }

  pin(l = this.selected[0], h = this.selected[1]) {
    this.set({ pins: togglePin(this.state.pins, l, h) });
  }

  goTo(i) {
    const { steps } = this.place;
    if (this.following) this.follow();
    this.set({ step: steps[Math.max(0, Math.min(steps.length - 1, i))] });
  }

  moveStep(by) {
    this.goTo(this.place.steps.indexOf(this.place.step) + by);
  }

  moveToken(by) {
    const { length } = this.maps.header;
    this.keep((Math.max(0, this.point.query) + by + length) % length, -1);
  }

  moveHead(down, right) {
    const { header: { layers, heads } } = this.maps;
    const [l, h] = this.selected;
    this.set({ layer: (l + down + layers) % layers, head: (h + right + heads) % heads });
  }

  zoom(factor) {
    this.views.maps.big.zoom(factor);
  }

  save() {
    const { run, tag, step } = this.place;
    savePicture($("main"), `${run} · ${tag} · step ${step}`);
  }

  explain() {
    $(".help").showModal();
  }

  play() {
    clearInterval(this.playing);
    this.playing = this.playing ? null : setInterval(() => this.beat(), BEAT);
    if (this.playing && this.place.step === this.place.steps.at(-1)) this.goTo(0);
    this.showBar();
  }

  beat() {
    if (!isShown() || this.busy) return;
    this.moveStep(1);
    if (this.place.step === this.place.steps.at(-1)) this.play();
  }

  follow() {
    clearInterval(this.following);
    this.following = this.following ? null : setInterval(() => isShown() && this.reload(), POLL);
    if (this.following) this.set({ step: -1 });
    this.showBar();
  }

  // What follows from it.

  /** Asks which steps there are; draws again if that has changed. */
  async reload() {
    try {
      const index = await this.cache.index();
      if (this.maps && JSON.stringify(index) === JSON.stringify(this.index)) return;
      this.index = index;
    } catch (error) {
      return this.complain(`TensorBoard does not answer: ${error.message}. Is it still running?`);
    }
    await this.refresh();
  }

  /** Loads and draws what the state asks for by now; of what is asked meanwhile, the last is done. */
  async refresh() {
    this.stale = true;
    if (this.busy) return;
    for (this.busy = true; this.stale; ) {
      this.stale = false;
      await this.load();
    }
    this.busy = false;
  }

  async load() {
    const { run, tag, points, step } = this.place;
    if (!points.length) return this.complain($("#nothing").content.textContent);
    const i = points.findIndex(([one]) => one === step);
    try {
      const maps = await this.cache.maps(run, tag, points[i]);
      const history = this.cache.scores(run, tag, points).catch(() => null);
      await Promise.all(this.views.maps.layers(maps.header).map((l) => maps.load(l)));
      if (this.state.view === "compare") await this.views.compare.load(maps);
      if (this.state.view === "scores") this.history = await history;
      this.maps = maps;
      const [layer, head] = this.selected; // chosen once: it must not jump from step to step
      Object.assign(this.state, { run, tag, layer, head });
      this.complain("");
      this.show();
      history.then((found) => found !== this.history && this.show((this.history = found)));
      this.fetch(run, tag, points[i + 1]);
    } catch (error) {
      this.complain(`Step ${step} of ${tag} in ${run} cannot be shown: ${error.message}. Other steps may be sound.`);
    }
    $("main").dataset.shown = `${run} ${tag} ${step}`;
  }

  /** A step ahead of its time. */
  fetch(run, tag, point) {
    const load = (maps) => this.views.maps.layers(maps.header).forEach((l) => maps.load(l));
    if (point) this.cache.maps(run, tag, point).then(load, () => {});
  }

  complain(words) {
    $("#problem").textContent = words;
    $("main").classList.toggle("empty", words !== "");
    this.showBar();
  }

  /** Every control as the state has it. */
  showBar() {
    const { run, tag, steps, step } = this.place;
    offer($("[name=run]"), Object.keys(this.index).map((one) => [one, one]));
    offer($("[name=tag]"), Object.keys(this.index[run] ?? {}).map((one) => [one, one.replace(/^attention\//, "")]));
    const now = { ...this.state, run, tag };
    for (const control of document.querySelectorAll("[name]")) {
      if (control.type === "radio") control.checked = control.value === now[control.name];
      else control.value = now[control.name];
    }
    Object.assign($("#steps"), { max: steps.length - 1, value: steps.indexOf(step), ariaValueText: `step ${step}` });
    $("#at").textContent = steps.length ? `step ${step} of ${steps.at(-1)}` : "";
    $("#play").ariaPressed = String(Boolean(this.playing));
    $("#follow").ariaPressed = String(Boolean(this.following));
  }

  show() {
    const { view } = this.state;
    for (const section of document.querySelectorAll(".view")) section.hidden = section.id !== view;
    $(".strip").hidden = view === "scores";
    this.views[view].show();
    this.text.show();
    this.say();
  }

  drawPoint() {
    this.drawing ??= requestAnimationFrame(() => {
      this.drawing = null;
      if (!this.maps || $("main").matches(".empty")) return;
      this.text.point();
      this.views[this.state.view].point?.();
      this.say();
    });
  }

  /** One sentence: `words`, else what is pointed at, else what is seen. */
  say(words) {
    const { layers, heads, length, about, causal } = this.maps.header;
    const seen = `${layers * heads} attention heads read ${length} tokens${about && ` (${about})`} at step ${this.place.step}. `;
    const future = causal ? ", hatched the future" : "";
    const maps = `A square is a head: a row is a token that looks, a column one that it looks at. Bright is much${future}. ` +
      "Point at a token or a square; press ? for help.";
    const scores = "A card is a score, a line a head over training. Click a point to go to that step.";
    $("#reading").textContent = words || this.sayCell() || seen + (this.state.view === "scores" ? scores : maps);
  }

  sayCell() {
    const { maps, point: { query, key }, focus: [l, h] } = this;
    if (!this.pointed || query < 0 || key < 0 || !maps.has(l)) return "";
    const [from, to] = [query, key].map((i) => `token ${i} “${maps.header.tokens[i]}”`);
    if (!maps.visible(query, key)) return `${to} comes after ${from}, which cannot see it`;
    return `L${l}H${h}: ${from} gives ${weight(maps.value(l, h, query, key))} of its attention to ${to}`;
  }
}
