/** Data from the server: each thing is asked for once, and old maps go when they take too much memory. */
import { Damaged, Maps, inflate } from "./format.js";

const ROOM = 192 * 2 ** 20; // bytes of maps

export class Cache {
  kept = new Map(); // longest unused first

  constructor(base = new URL("../", import.meta.url), ask = fetch.bind(globalThis), room = ROOM) {
    Object.assign(this, { base, ask, room });
  }

  async json(route, query) { return (await this.get(route, query)).json(); }
  /** {run: {tag: [[step, wall time], …]}}, asked anew each time. */
  async index() { return (await this.json("index", { t: Date.now() })).runs; }

  /** The scores of all steps; `points` are the tag's [step, wall time] pairs. */
  scores(run, tag, points) {
    const t = `${points.length}.${points.at(-1)[1]}`;
    return this.once(`scores ${run} ${tag} ${t}`, () => this.json("scores", { run, tag, t }));
  }

  /** The maps of a step. The wall time tells a run that was made again from the old one. */
  maps(run, tag, [step, t]) {
    return this.once(`maps ${run} ${tag} ${step} ${t}`, async () => {
      const header = await this.json("header", { run, tag, step, t });
      if (header.version !== 1) throw new Damaged("it is in a newer format; load the page again");
      return new Maps(header, async (layer, size) => {
        this.makeRoom();
        return inflate((await this.get("layer", { run, tag, step, layer, t })).body, size);
      });
    });
  }

  once(key, make) {
    const entry = this.kept.get(key) ?? { promise: make() };
    this.kept.delete(key);
    this.kept.set(key, entry); // now the last one used
    entry.promise.then((value) => (entry.value = value), () => this.kept.delete(key)); // a failure is tried again
    return entry.promise;
  }

  makeRoom() {
    const bytes = ({ value }) => (value instanceof Maps ? value.loading.length * value.header.heads * value.size : 0);
    let total = [...this.kept.values()].reduce((sum, entry) => sum + bytes(entry), 0);
    for (const [key, entry] of this.kept) {
      if (total < this.room || this.kept.size <= 4) return;
      total -= bytes(entry);
      this.kept.delete(key);
    }
  }

  async get(route, query) {
    const url = new URL(route, this.base);
    url.search = new URLSearchParams(query);
    const answer = await this.ask(url);
    if (answer.ok) return answer;
    const { error } = await answer.json().catch(() => ({}));
    throw new Damaged(error ?? `TensorBoard answered ${answer.status}`);
  }
}
