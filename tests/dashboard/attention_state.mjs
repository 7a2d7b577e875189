/** Addresses, names, colours and the cache: the parts of the page that need no page. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";
import { Cache } from "../../dashboard/attention_tab/static/cache.js";
import { App } from "../../dashboard/attention_tab/static/app.js";
import { number, shorten, weight } from "../../dashboard/attention_tab/static/dom.js";
import { colours, shade, table } from "../../dashboard/attention_tab/static/palette.js";
import { label, mostTelling, ranking, scoresOf, since, strongest } from "../../dashboard/attention_tab/static/scoring.js";
import { CHOICES, DEFAULTS, locate, nearest, parse, parsePins, serialise, togglePin } from "../../dashboard/attention_tab/static/state.js";

test("an address holds a state, whatever a run is called", () => {
  const state = { ...DEFAULTS, run: "a&b=c#d/é|+ %20", tag: "attention/text", step: 0, view: "scores", floor: 0.25,
    against: "run:x|y&z|step:50", pins: "0.1,2.3", layer: 3, head: 0, query: -2 };
  assert.deepEqual(parse(serialise(state)), state);
  assert.equal(serialise(DEFAULTS), "#attention");
  assert.match(serialise({ ...DEFAULTS, step: 4 }), /^#attention&p\.attention\.step=4$/);
});

test("nonsense in an address is as if it were not there", () => {
  const nonsense = "#attention&p.attention.view=secret&p.attention.step=x&p.attention.step=&p.attention.palette=__proto__" +
    "&p.attention.__proto__=1&p.attention.layer=NaN&p.other.step=7&step=9&p.attention.floor=Infinity";
  assert.deepEqual(parse(nonsense), DEFAULTS);
  for (const hash of ["", "#", "#scalars", "#attention"]) assert.deepEqual(parse(hash), DEFAULTS);
});

test("choices contain what is usual", () => {
  for (const [key, values] of Object.entries(CHOICES)) assert.ok(values.includes(DEFAULTS[key]), key);
});

test("a state means the youngest run, its text, and the step at or before the one that is asked for", () => {
  const index = { old: { "attention/text": [[0, 1], [10, 2]] }, young: { "attention/a": [[0, 5]], "attention/text": [[0, 5], [20, 9]] } };
  const place = (state) => locate(index, { ...DEFAULTS, ...state });
  assert.deepEqual([place({}).run, place({}).tag, place({}).step], ["young", "attention/text", 20]);
  assert.deepEqual([place({ run: "old", step: 15 }).run, place({ run: "old", step: 15 }).step], ["old", 10]);
  assert.equal(place({ run: "gone" }).run, "young");
  assert.equal(place({ tag: "attention/a" }).tag, "attention/a");
  assert.deepEqual(locate({}, DEFAULTS).steps, []);
  assert.equal(place({ run: "constructor" }).run, "young");
  assert.equal(nearest([5, 10], 3), 5);
});

test("pins: twice is not at all, and only heads that exist", () => {
  const once = togglePin(togglePin("", 1, 3), 2, 0);
  assert.equal(once, "1.3,2.0");
  assert.equal(togglePin(once, 1, 3), "2.0");
  assert.deepEqual(parsePins(once, { layers: 3, heads: 4 }), [[1, 3], [2, 0]]);
  assert.deepEqual(parsePins("1.3,2.0,-1.0,x.y,1,0.9,1.2.3", { layers: 2, heads: 4 }), [[1, 3]]);
});

test("numbers say no more than is known", () => {
  assert.deepEqual([0, 0.0004, 0.0123, 0.5, 1, -0.02].map(weight), ["0", "<0.001", "0.012", "0.50", "1.00", "−0.020"]);
  assert.deepEqual([number(null), number(undefined), number(-0.001), number(0.126), number(0.05, 3, "+")], ["–", "–", "0.00", "0.13", "+0.050"]);
  assert.deepEqual([shorten("abcd", 4), shorten("abcdef", 4), shorten("中文字", 4), shorten("😀😀", 3)], ["abcd", "abcd…", "中文…", "😀…"]);
});

const light = ([r, g, b]) => 0.2126 * (r / 255) ** 2.2 + 0.7152 * (g / 255) ** 2.2 + 0.0722 * (b / 255) ** 2.2;

test("more is lighter, in every palette but paper by day, where it is darker", () => {
  for (const name of CHOICES.palette) {
    for (const dark of [false, true]) {
      const sign = name === "paper" && !dark ? -1 : 1;
      const steps = colours(name, dark).map(light);
      for (let i = 4; i < 256; i++) assert.ok(sign * (steps[i] - steps[i - 4]) > 0, `${name} ${dark} ${i}`);
    }
  }
});

test("change: the middle is the page, and both ends are equally far from it", () => {
  for (const dark of [false, true]) {
    const all = colours("change", dark).map(light);
    assert.ok(Math.abs(all[0] - all[255]) < 0.06);
    for (let i = 8; i < 124; i += 4) assert.ok((all[i] - all[i - 8]) * (all[255 - i] - all[263 - i]) > 0, `${dark} ${i}`);
  }
});

test("a byte's shade follows the weight's root, or the weight", () => {
  assert.equal(shade(255, 1, "sqrt", false), 255);
  assert.equal(shade(128, 1, "sqrt", false), 128); // p = 0.25
  assert.equal(shade(128, 1, "linear", false), Math.round(255 * (128 / 255) ** 2));
  assert.equal(shade(128, 0.25, "linear", false), 255); // beyond the end of the scale
  assert.deepEqual([1, 128, 255].map((byte) => shade(byte, 1, "sqrt", true)), [0, 128, 255]);
  const [r, g, b] = colours("viridis")[200];
  assert.equal(table("viridis", false, 1, "sqrt", false)[200], ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0);
});

const HEADER = { layers: 2, heads: 2, scores: {
  entropy: [[0.9, 0.9], [0.9, 0.9]], first_token: [[0.95, 0.1], [0, 0]], previous_token: [[0, 0.2], [0.6, 0.1]], mine: [[1, 1], [1, 1]] } };

test("heads are named by the pattern in which they score most", () => {
  assert.deepEqual(scoresOf(HEADER), ["previous_token", "first_token", "entropy", "mine"]);
  assert.deepEqual(strongest(HEADER, 0, 0), { name: "first_token", value: 0.95, clear: true });
  assert.deepEqual(strongest(HEADER, 0, 1), { name: "previous_token", value: 0.2, clear: false });
  assert.equal(strongest({ scores: {} }, 0, 0), undefined);
  assert.deepEqual(mostTelling(HEADER), [1, 0]); // and not the sink
  assert.deepEqual(mostTelling({ ...HEADER, scores: {} }), [0, 0]);
  assert.equal(label("previous_token"), "previous token");
  assert.deepEqual(scoresOf({ scores: { constructor: [[1]] } }), ["constructor"]);
});

test("rankings put what is missing last, and since is where the last clear stretch began", () => {
  assert.deepEqual(ranking([[0.1, null], [0.7, 0.3]]).map(({ at }) => at.join()), ["1,0", "1,1", "0,0", "0,1"]);
  assert.equal(since([0, 10, 20, 30], [0.6, 0.2, 0.5, 0.9]), 20);
  assert.equal(since([0, 10], [0.9, 0.9]), 0);
  assert.equal(since([0, 10], [0.9, null]), undefined);
});

/** A server of made-up steps that counts what it is asked. */
function server(asked) {
  return async (url) => {
    asked.push(url.pathname.split("/").at(-1) + url.search);
    if (url.searchParams.get("step") === "13") return Response.json({ error: "the header is damaged" }, { status: 400 });
    if (url.pathname.endsWith("layer")) return new Response(gzipSync(new Uint8Array(10)));
    const header = { version: url.searchParams.get("step") === "14" ? 2 : 1, layers: 2, heads: 1, length: 4, causal: true, tokens: ["a", "b", "c", "d"] };
    return Response.json(url.pathname.endsWith("scores") ? { steps: [] } : header);
  };
}

test("each step is asked for once; a run made again is another one; a failure is tried again", async () => {
  const asked = [];
  const cache = new Cache(new URL("http://board/data/plugin/attention/"), server(asked));
  const maps = await cache.maps("r/1 ü", "attention/text", [0, 1.5]);
  await Promise.all([maps.load(0), maps.load(0)]);
  assert.equal(await cache.maps("r/1 ü", "attention/text", [0, 1.5]), maps);
  assert.deepEqual(asked, ["header?run=r%2F1+%C3%BC&tag=attention%2Ftext&step=0&t=1.5", "layer?run=r%2F1+%C3%BC&tag=attention%2Ftext&step=0&layer=0&t=1.5"]);
  assert.notEqual(await cache.maps("r/1 ü", "attention/text", [0, 99]), maps);
  for (const _ of [1, 2]) await assert.rejects(cache.maps("r", "t", [13, 1]), { message: "the header is damaged" });
  assert.equal(asked.filter((one) => one.includes("step=13")).length, 2);
  await assert.rejects(cache.maps("r", "t", [14, 1]), { message: "it is in a newer format; load the page again" });
});

test("maps that were not looked at for long make room", async () => {
  const asked = [];
  const cache = new Cache(new URL("http://board/"), server(asked), 100); // bytes: five steps of two layers
  for (let step = 20; step < 40; step++) {
    const maps = await cache.maps("r", "t", [step, 1]);
    await Promise.all([maps.load(0), maps.load(1)]);
    await cache.maps("r", "t", [20, 1]); // looked at again and again
  }
  assert.ok(cache.kept.size <= 8, `${cache.kept.size}`);
  assert.ok([...cache.kept.keys()].some((key) => key.includes(" 20 ")));
  assert.ok(![...cache.kept.keys()].some((key) => key.includes(" 25 ")));
});

test("every key and button does something, and every control is a part of the state", () => {
  const page = readFileSync(new URL("../../dashboard/attention_tab/static/page.html", import.meta.url), "utf8");
  const found = (pattern) => [...page.matchAll(pattern)].map(([, one]) => one);
  for (const action of found(/data-do="(\S+?)[ "]/g)) assert.equal(typeof App.prototype[action], "function", action);
  for (const name of found(/ name="(\w+)"/g)) assert.ok(name in DEFAULTS, name);
  const radios = [...page.matchAll(/name="(\w+)" value="(\w+)"/g)];
  for (const [key, values] of Object.entries(CHOICES)) {
    assert.deepEqual(radios.filter(([, name]) => name === key).map(([, , value]) => value), values);
  }
  assert.equal(new Set(found(/data-key="(.+?)"/g)).size, found(/data-key="/g).length);
  assert.doesNotMatch(page, /\son\w+=|javascript:|https?:/);
});
