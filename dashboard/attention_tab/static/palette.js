/** Colours of weights: anchors of matplotlib's tables, joined by straight lines. Lightness rises evenly, so that they
 *  read the same to colour-blind eyes and in grey. "paper" and "change" begin at the page's own colour. */

const ANCHORS = {
  viridis: "440154482173433e8538588c2d708e25858e1e9b8a2ab07f52c56986d549c2df23fde725",
  cividis: "00224e0132712f426d48526c5e636f7273748784789d9576b6a96fcebc63e7d150fee838",
  magma: "000004120d3133106759157e7e2482a3307ec83e73e95462fa7d5efea973fed395fcfdbf",
  paperlight: "fafafaf9d8bff2a97bdc7633a84b10662a06",
  paperdark: "2a2c2f56392a8d4f27c76f2aff9e57ffe0c4",
  changelight: "08306b2171b56baed6c6dbeff7f7f7fdd0a2fd8d3cd94801662a06",
  changedark: "c6dbef6baed63182bd24507d3033387a431ccc6616fd9a4ffdd9b8",
};

/** 256 colours as [r, g, b]. */
export function colours(name, dark = false) {
  const hex = ANCHORS[name] ?? ANCHORS[name + (dark ? "dark" : "light")];
  const anchors = hex.match(/.{6}/g).map((one) => one.match(/../g).map((pair) => parseInt(pair, 16)));
  return Array.from({ length: 256 }, (_, i) => {
    const place = (i / 255) * (anchors.length - 1);
    const left = Math.min(Math.floor(place), anchors.length - 2);
    return anchors[left].map((from, c) => Math.round(from + (place - left) * (anchors[left + 1][c] - from)));
  });
}

/** Which of 256 colours a byte has: `top` is the weight at which colour ends, `curve` how it gets there. */
export function shade(byte, top, curve, signed) {
  const root = (signed ? (byte - 128) / 127 : byte / 255) / Math.sqrt(top);
  const reach = Math.min(1, curve === "sqrt" ? Math.abs(root) : root * root);
  return Math.round(signed ? 127.5 + 127.5 * Math.sign(root) * reach : 255 * reach);
}

const tables = new Map();
/** What to paint for each byte: 256 pixels, as a canvas has them in memory. */
export function table(name, dark, top, curve, signed) {
  const key = [name, dark, top, curve].join();
  if (tables.has(key)) return tables.get(key);
  if (tables.size > 2000) tables.clear();
  const pixels = colours(name, dark).map(([r, g, b]) => (255 << 24) | (b << 16) | (g << 8) | r);
  tables.set(key, Uint32Array.from({ length: 256 }, (_, byte) => pixels[shade(byte, top, curve, signed)]));
  return tables.get(key);
}
