/** What the page shows, as one flat record that fits into an address. */

export const DEFAULTS = {
  view: "maps", run: "", tag: "", step: -1, // -1 = the latest
  layer: -1, head: -1, // -1 = the head with the clearest pattern
  query: -1, // the token that looks; -1 = the last one, -2 = none
  key: -1, // the token looked at; -1 = none
  toward: "from", // a token of the text shows where it looks ("from") or who looks at it ("to")
  pins: "", // "1.3,2.0": layer.head
  palette: "viridis", curve: "sqrt", range: "shared", // one colour scale for all heads, or one for "each"
  order: "layer", floor: 0, // or a score, and the least of it that is still shown
  score: "previous_token", axis: "log", // over training
  against: "step:previous", // to compare with: "step:previous", "step:first", "step:50", "run:name"; | between
};
export const CHOICES = {
  view: ["maps", "scores", "compare"], toward: ["from", "to"], axis: ["log", "linear"],
  palette: ["viridis", "cividis", "magma", "paper"], curve: ["sqrt", "linear"], range: ["shared", "each"],
};
const PREFIX = "p.attention.";

/** A value given as text, or undefined if it makes no sense. */
export function read(key, text) {
  if (CHOICES[key]) return CHOICES[key].includes(text) ? text : undefined;
  if (typeof DEFAULTS[key] !== "number") return text;
  return text.trim() !== "" && Number.isFinite(Number(text)) ? Number(text) : undefined;
}

/** The record in an address's fragment; what makes no sense there is as if it were not there. */
export function parse(hash) {
  const state = { ...DEFAULTS };
  for (const [name, text] of new URLSearchParams(hash.replace(/^#[^&]*&?/, ""))) {
    const key = name.startsWith(PREFIX) ? name.slice(PREFIX.length) : "";
    if (Object.hasOwn(DEFAULTS, key)) state[key] = read(key, text) ?? state[key];
  }
  return state;
}

/** The fragment of a record: only what is not as usual. */
export function serialise(state) {
  const keys = Object.keys(DEFAULTS).filter((key) => state[key] !== DEFAULTS[key]);
  return ["#attention", ...keys.map((key) => new URLSearchParams([[PREFIX + key, state[key]]]))].join("&");
}

/** What a record means, given the index {run: {tag: [[step, wall time], …]}}; the youngest run unless it says. */
export function locate(index, state) {
  const age = (run) => Math.max(...Object.values(index[run]).map((points) => points.at(-1)[1]));
  const run = Object.hasOwn(index, state.run) ? state.run : Object.keys(index).sort((a, b) => age(b) - age(a))[0];
  const tags = Object.keys(index[run] ?? {});
  const tag = tags.includes(state.tag) ? state.tag : (tags.find((one) => one.endsWith("/text")) ?? tags[0]);
  const points = index[run]?.[tag] ?? [];
  const steps = points.map(([step]) => step);
  return { run, tag, points, steps, step: nearest(steps, state.step) };
}

/** The recorded step at or before `step`, or the first one; −1 = the latest. */
export function nearest(steps, step) {
  return step < 0 ? steps.at(-1) : (steps.findLast((one) => one <= step) ?? steps[0]);
}

/** "1.3,2.0" → [[1, 3], [2, 0]], those that exist. */
export function parsePins(text, { layers, heads }) {
  const pairs = text.split(",").filter((one) => /^\d+\.\d+$/.test(one)).map((one) => one.split(".").map(Number));
  return pairs.filter(([l, h]) => l < layers && h < heads);
}

/** The pins with one head more, or without it if it was there. */
export function togglePin(text, l, h) {
  const [name, pins] = [`${l}.${h}`, text.split(",").filter(Boolean)];
  return (pins.includes(name) ? pins.filter((one) => one !== name) : [...pins, name]).join(",");
}
