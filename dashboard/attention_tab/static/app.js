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
const around = (place, count) => (place + count) % count;

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
  get place() { return locate(this.index, this.state); }
  /** [layer, head] that the text and the sentence speak of. */
  get focus() { return this.pointed?.head ?? this.selected; }
  /** [layer, head] of the large map. */
  get selected() { return this.choose(this.maps.header); }
  choose(header) {
    const { layer: l, head: h } = this.state;
    return l >= 0 && l < header.layers && h >= 0 && h < header.heads ? [l, h] : mostTelling(header);
  }

  /** The token that looks and the token looked at: those under the pointer, else those kept; −1 = none. */
  get point() {
    const { state: { query, key }, maps: { header: { length } } } = this;
    const [t, s] = [query === -1 ? Infinity : query, key].map((place) => Math.min(place, length - 1));
    return this.pointed ?? { query: t, key: s };
  }

  /** The weight at which colour ends, and the pixel for each byte. */
  top(maps, l, h) { return this.state.range === "each" ? maps.top(l, h) : maps.sharedTop(); }
  lut(maps, l, h) {
    const { palette, curve } = this.state;
    return table(maps.signed ? "change" : palette, isDark(), this.top(maps, l, h), curve, maps.signed);
  }

  set(patch) {
    const changed = Object.keys(patch).filter((key) => this.state[key] !== patch[key]);
    Object.assign(this.state, patch);
    this.writeAddress();
    if (changed.some((key) => key !== "query" && key !== "key")) this.refresh();
    else if (changed.length) this.drawPoint();
  }

  /** A link may be pasted into the address. TensorBoard writes the last one there again with every change of tabs. */
  readAddress() {
    const link = serialise(parse(readHash()));
    if (link === "#attention" || link === this.link) return;
    this.set(parse((this.link = link)));
  }
  writeAddress() { writeHash(serialise(this.state)); }
  put(key, value) { this.set({ [key]: value }); }
  next(key) { this.put(key, CHOICES[key][(CHOICES[key].indexOf(this.state[key]) + 1) % CHOICES[key].length]); }
  keep(query, key) { this.set({ query: query < 0 ? -2 : query, key }); }
  pin(l = this.selected[0], h = this.selected[1]) { this.put("pins", togglePin(this.state.pins, l, h)); }
  hover(query, key, head) { this.drawPoint((this.pointed = { query, key, head })); }
  unhover() { this.drawPoint((this.pointed = null)); }
  moveStep(by) { this.goTo(this.place.steps.indexOf(this.place.step) + by); }
  zoom(factor) { this.views.maps.big.zoom(factor); }
  explain() { $(".help").showModal(); }
  save({ run, tag, step } = this.place) { savePicture($("main"), `${run} · ${tag} · step ${step}`); }

  goTo(i) {
    const { steps } = this.place;
    if (this.following) this.follow();
    this.put("step", steps[Math.max(0, Math.min(steps.length - 1, i))] ?? -1);
  }

  /** [query, key] that a token of the text stands for. */
  cell(i) { return this.state.toward === "from" ? [i, -1] : [-1, i]; }
  moveToken(by) {
    const at = Math.max(0, this.point.query, this.point.key);
    this.keep(...this.cell(around(at + by, this.maps.header.length)));
  }

  moveHead(down, right) {
    const { selected: [l, h], maps: { header: { layers, heads } } } = this;
    this.set({ layer: around(l + down, layers), head: around(h + right, heads) });
  }

  play() {
    clearInterval(this.playing);
    this.playing = this.playing ? null : setInterval(() => isShown() && !this.busy && this.beat(), BEAT);
    if (this.playing && this.place.step === this.place.steps.at(-1)) this.goTo(0);
    this.showBar();
  }

  beat() {
    this.moveStep(1);
    if (this.place.step === this.place.steps.at(-1)) this.play();
  }

  follow() {
    clearInterval(this.following);
    this.following = this.following ? null : setInterval(() => isShown() && this.reload(), POLL);
    if (this.following) this.put("step", -1);
    this.showBar();
  }

  /** Asks which steps there are; draws again if that has changed. */
  async reload() {
    try {
      const index = await this.cache.index();
      if (!$("main").matches(".empty") && JSON.stringify(index) === JSON.stringify(this.index)) return;
      this.index = index;
      await this.refresh();
    } catch (error) {
      this.complain(`TensorBoard does not answer: ${error.message}. Is it still running?`);
    }
  }

  /** Loads and draws what the state asks for by now; of what is asked meanwhile, the last is done. */
  async refresh() {
    this.stale = true;
    if (this.busy) return;
    for (this.busy = true; this.stale; ) {
      this.stale = false;
      await this.load(this.place);
    }
    this.busy = false;
  }

  async load({ run, tag, points, steps, step }) {
    if (!points.length) return this.complain($("#nothing").content.textContent);
    try {
      const i = steps.indexOf(step);
      const history = this.cache.scores(run, tag, points).catch(() => null);
      const maps = await this.fetch(run, tag, points[i]);
      if (this.state.view === "compare") await this.views.compare.load(maps);
      const alike = (key) => maps.header[key] === this.maps?.header[key];
      if (!["layers", "heads", "length"].every(alike)) this.pointed = null; // it may not exist here
      Object.assign(this, { maps, history: await history });
      const [layer, head] = this.selected; // chosen once: it must not jump from step to step
      Object.assign(this.state, { run, tag, layer, head });
      this.complain("");
      this.show();
      if (points[i + 1]) this.fetch(run, tag, points[i + 1]).catch(() => {}); // ahead of its time
    } catch (error) {
      this.complain(`Step ${step} of ${tag} in ${run} cannot be shown: ${error.message}. Other steps may be sound.`);
    }
    $("main").dataset.shown = `${run} ${tag} ${step}`;
  }

  /** The maps of a step, with the layers that are drawn. */
  async fetch(run, tag, point) {
    const maps = await this.cache.maps(run, tag, point);
    await Promise.all(this.views.maps.layers(maps.header).map((l) => maps.load(l)));
    return maps;
  }

  complain(words) {
    $("#problem").textContent = words;
    $("main").classList.toggle("empty", words !== "");
    this.showBar();
  }

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
      if ($("main").matches(".empty")) return;
      this.text.point();
      this.views[this.state.view].point?.();
      this.say();
    });
  }

  /** One sentence: `words`, else what is pointed at, else what is seen. */
  say(words) {
    const { layers, heads, length, about } = this.maps.header;
    const seen = `${layers} × ${heads} attention heads read ${length} tokens at step ${this.place.step}. ${about} `;
    $("#reading").textContent = words || this.sayCell() || seen + $(`#${this.state.view}`).dataset.how;
  }

  sayCell() {
    const { maps, pointed, point: { query, key }, focus: [l, h] } = this;
    if (!pointed || query < 0 || key < 0 || !maps.has(l)) return "";
    const [from, to] = [query, key].map((i) => `token ${i} “${maps.header.tokens[i]}”`);
    if (!maps.visible(query, key)) return `${to} comes after ${from}, which cannot see it`;
    return `L${l}H${h}: ${from} gives ${weight(maps.value(l, h, query, key))} of its attention to ${to}`;
  }
}
