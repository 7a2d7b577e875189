/** What heads are called. The scores are those of dashboard/heads.py; page.html says what each one means. */

const PATTERNS = ["previous_token", "induction", "duplicate_token", "first_token", "current_token"];
const CLEAR = 0.5; // of a head's attention
export const label = (name) => (name === "gain" ? "induction gain" : name.replaceAll("_", " "));
export const short = (name) => label(name).replace(/ token$/, ""); // where there is little room
export const nameOf = ([l, h]) => `L${l}H${h}`;

/** The scores of a header, those that are patterns first. */
export function scoresOf({ scores }) {
  const known = PATTERNS.filter((name) => scores[name]);
  return [...known, ...Object.keys(scores).filter((name) => !PATTERNS.includes(name))];
}

/** {name, value, clear}: the pattern in which a head scores most; undefined if none was scored. */
export function strongest({ scores }, l, h) {
  const found = PATTERNS.filter((name) => scores[name]?.[l]?.[h] != null);
  const name = found.sort((a, b) => scores[b][l][h] - scores[a][l][h])[0];
  return name && { name, value: scores[name][l][h], clear: scores[name][l][h] >= CLEAR };
}

/** [layer, head] to begin with: the clearest pattern; heads that rest somewhere count half. */
export function mostTelling(header) {
  const rank = ([l, h]) => {
    const { name, value } = strongest(header, l, h) ?? { value: 0 };
    return name === "first_token" || name === "current_token" ? value / 2 : value;
  };
  return allHeads(header).sort((a, b) => rank(b) - rank(a))[0];
}

export function allHeads({ layers, heads }) {
  return Array.from({ length: layers * heads }, (_, i) => [Math.floor(i / heads), i % heads]);
}

/** All heads as {at: [layer, head], value}, best first; those without a value last. */
export function ranking(matrix) {
  const all = matrix.flatMap((row, l) => row.map((value, h) => ({ at: [l, h], value })));
  return all.sort((a, b) => (b.value ?? -Infinity) - (a.value ?? -Infinity));
}

/** The first step from which a score has stayed clear; undefined if it is not. */
export const since = (steps, values) => steps[values.findLastIndex((value) => !(value >= CLEAR)) + 1];
