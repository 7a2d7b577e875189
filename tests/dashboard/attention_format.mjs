/** What the page makes of the server's bytes: values against weights, and every way in which bytes can be wrong. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout } from "node:timers/promises";
import { constants, deflateRawSync, gzipSync } from "node:zlib";
import { Damaged, Difference, Maps, inflate } from "../../dashboard/attention_tab/static/format.js";
import { paintWindow } from "../../dashboard/attention_tab/static/paint.js";

const random = (seed) => () => (seed = (seed * 16807) % 2147483647) / 2147483647;
const stream = (bytes, size = 1000) => new ReadableStream({
  start(controller) {
    for (let i = 0; i < bytes.length; i += size) controller.enqueue(bytes.subarray(i, i + size));
    controller.close();
  },
});

/** (L, H, T, T) rows that sum to 1, 0 above the diagonal if causal. */
function weights(L, H, T, causal, seed = 1) {
  const next = random(seed);
  const row = (t) => {
    const raw = Array.from({ length: T }, (_, s) => (causal && s > t ? 0 : next() ** 8));
    const sum = raw.reduce((a, b) => a + b);
    return raw.map((value) => value / sum);
  };
  const times = (n, make) => Array.from({ length: n }, (_, i) => make(i));
  return times(L, () => times(H, () => times(T, row)));
}

/** As dashboard/recording.py writes them. */
function encoded(layer, causal) {
  const cells = layer.flatMap((head) => head.flatMap((row, t) => (causal ? row.slice(0, t + 1) : row)));
  return Uint8Array.from(cells, (p) => Math.round(255 * Math.sqrt(p)));
}

const header = (L, H, T, causal = true) => ({ version: 1, layers: L, heads: H, length: T, causal,
  tokens: Array.from({ length: T }, (_, i) => `t${i}`), scores: {}, loss: null, ablation: null, gain: null, about: "" });

async function load(w, causal) {
  const maps = new Maps(header(w.length, w[0].length, w[0][0].length, causal), async (l) => encoded(w[l], causal));
  await Promise.all(w.map((_, l) => maps.load(l)));
  return maps;
}

for (const causal of [true, false]) {
  test(`every weight comes back, causal ${causal}`, async () => {
    const w = weights(2, 3, 9, causal);
    const maps = await load(w, causal);
    assert.equal(maps.size, causal ? 45 : 81);
    w.forEach((layer, l) => layer.forEach((head, h) => head.forEach((row, t) => row.forEach((p, s) => {
      assert.equal(maps.visible(t, s), !causal || s <= t);
      if (maps.visible(t, s)) assert.ok(Math.abs(maps.value(l, h, t, s) - p) <= 0.004 * Math.sqrt(p) + 4e-6);
    }))));
  });
}

test("gzip is unpacked to exactly the size that the shape allows", async () => {
  const bytes = Uint8Array.from({ length: 50_000 }, (_, i) => (i * i) % 251);
  assert.deepEqual(await inflate(stream(gzipSync(bytes)), bytes.length), bytes);
  await assert.rejects(inflate(stream(gzipSync(bytes)), bytes.length - 1), { message: "it is longer than its shape allows" });
  await assert.rejects(inflate(stream(gzipSync(bytes)), bytes.length + 1), { message: "it is shorter than its shape says" });
});

test("half a layer, noise and nothing are damaged, not a crash", async () => {
  const whole = gzipSync(Uint8Array.from({ length: 9000 }, (_, i) => (i * 7919) % 256));
  const wrong = Uint8Array.from(whole);
  wrong[whole.length - 6] ^= 255; // in the checksum
  for (const bytes of [whole.subarray(0, whole.length / 2), whole.subarray(4), wrong, new Uint8Array(0)]) {
    await assert.rejects(inflate(stream(bytes), 9000), Damaged);
  }
});

test("a bomb without an end is put down after its first pieces", async () => {
  const head = gzipSync("").subarray(0, 10);
  const piece = deflateRawSync(new Uint8Array(2 ** 20), { finishFlush: constants.Z_SYNC_FLUSH }); // a kB for a MB
  let pieces = 0;
  const stopped = new Promise((stop) => {
    const pull = async (to) => {
      await setTimeout(1); // as from a network, or node would ask for 16,384 pieces at once
      to.enqueue(pieces++ ? piece : head);
    };
    const source = new ReadableStream({ pull, cancel: stop });
    assert.rejects(inflate(source, 1000), { message: "it is longer than its shape allows" });
  });
  await stopped;
  assert.ok(pieces < 100, `${pieces} pieces`);
});

test("a damaged layer leaves the others alone, and says why", async () => {
  const maps = new Maps(header(2, 1, 4), async (l, size) => {
    assert.equal(size, 10);
    if (l === 1) throw new Error("TensorBoard answered 404");
    return new Uint8Array(10);
  });
  await Promise.all([maps.load(0), maps.load(1)]);
  assert.ok(maps.has(0) && !maps.has(1));
  assert.equal(maps.layers[1].message, "TensorBoard answered 404");
});

test("a layer is fetched once", async () => {
  let asked = 0;
  const maps = new Maps(header(1, 1, 2), async () => new Uint8Array([++asked, 0, 0]));
  await Promise.all([maps.load(0), maps.load(0)]);
  await maps.load(0);
  assert.equal(asked, 1);
});

test("a layer that did not come is asked for again", async () => {
  let up = false;
  const maps = new Maps(header(1, 1, 2), async () => {
    if (!up) throw new TypeError("Failed to fetch");
    return new Uint8Array(3);
  });
  await maps.load(0);
  assert.ok(!maps.has(0) && maps.layers[0].message === "Failed to fetch");
  up = true;
  await maps.load(0);
  assert.ok(maps.has(0));
});

test("a difference is second − first, cell by cell, on a scale of its own", async () => {
  const [a, b] = await Promise.all([load(weights(1, 2, 8, true, 3), true), load(weights(1, 2, 8, true, 5), true)]);
  const change = new Difference(a, b);
  await change.load(0);
  const changes = [];
  for (let t = 0; t < 8; t++) {
    for (let s = 0; s <= t; s++) {
      const exact = b.value(0, 1, t, s) - a.value(0, 1, t, s);
      assert.equal(change.value(0, 1, t, s), exact);
      const byte = change.layers[0][change.start(1, t) + s];
      const drawn = Math.sign(byte - 128) * ((byte - 128) / 127) ** 2;
      assert.ok(Math.abs(drawn - exact) < 0.008, `${drawn} for ${exact}`);
      changes.push(Math.abs(exact));
    }
  }
  const fourth = changes.sort((x, y) => y - x)[3]; // of eight tokens
  assert.ok(Math.abs(change.top(0, 1) - fourth) < 0.02, `${change.top(0, 1)} for ${fourth}`);
  assert.equal(change.sharedTop(), Math.max(change.top(0, 0), change.top(0, 1)));
});

test("moved: nothing between a step and itself, everything between two heads that look elsewhere", async () => {
  const one = (look) => [[Array.from({ length: 6 }, (_, t) => Array.from({ length: 6 }, (_, s) => Number(s === look(t))))]];
  const [first, itself] = await Promise.all([load(one(() => 0), true), load(one((t) => t), true)]);
  const [same, other] = [new Difference(first, first), new Difference(first, itself)];
  await Promise.all([same.load(0), other.load(0)]);
  assert.equal(same.moved(0, 0), 0);
  assert.equal(other.moved(0, 0), 5 / 6); // row 0 can only see itself
});

test("a damaged layer on either side damages the difference", async () => {
  const sound = await load(weights(1, 1, 4, true), true);
  const broken = new Maps(sound.header, async () => { throw new Damaged("it cannot be unpacked"); });
  const change = new Difference(sound, broken);
  await change.load(0);
  assert.ok(!change.has(0));
  assert.equal(change.layers[0].message, "it cannot be unpacked");
  const wide = new Maps({ ...sound.header, heads: 5 }, null);
  assert.throws(() => new Difference(sound, wide), { message: "has another shape: heads 1, not 5" });
});

for (const [causal, factor, from, count] of [[true, 1, [0, 0], 12], [false, 1, [0, 0], 12], [true, 3, [0, 0], 12],
  [false, 5, [0, 0], 12], [true, 1, [4, 2], 5], [true, 2, [5, 0], 7]]) {
  test(`pixels, causal ${causal}, ${factor} × ${factor} cells each, ${count} from ${from}`, async () => {
    const maps = await load(weights(1, 2, 12, causal, 11), causal);
    const lut = Uint32Array.from({ length: 256 }, (_, byte) => 1000 + byte);
    const wide = Math.ceil(count / factor);
    const pixels = new Uint32Array(wide * wide);
    paintWindow(pixels, maps, 0, 1, lut, from, count, factor);
    const expected = new Uint32Array(wide * wide); // the slow way
    for (let t = from[0]; t < from[0] + count; t++) {
      for (let s = from[1]; s < from[1] + count; s++) {
        const place = Math.floor((t - from[0]) / factor) * wide + Math.floor((s - from[1]) / factor);
        if (maps.visible(t, s)) expected[place] = Math.max(expected[place], lut[maps.layers[0][maps.start(1, t) + s]]);
      }
    }
    assert.deepEqual(pixels, expected); // and 0, which is transparent, where nothing may be seen
  });
}

test("a head's own scale shows its pattern, and not its few extremes", async () => {
  const T = 64;
  const head = (weight) => Array.from({ length: T }, (_, t) => Array.from({ length: T }, (_, s) => (s > t ? 0 : weight(t, s))));
  const previous = head((t, s) => (s === t - 1 ? 0.8 : 0.01)); // a line of T - 1 cells
  const broad = head((t) => 1 / (t + 1)); // the first rows are sharp, since they see little
  const maps = await load([[previous, broad]], true);
  assert.ok(Math.abs(maps.top(0, 0) - 0.8) < 0.004, `${maps.top(0, 0)}`);
  assert.ok(maps.top(0, 1) < 0.14 && maps.top(0, 1) > 0.1, `${maps.top(0, 1)}`); // row √T of T
  assert.equal(maps.sharedTop(), 1);
});
