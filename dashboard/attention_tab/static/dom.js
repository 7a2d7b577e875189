/** Small things for the page: its parts, its numbers in words, canvases that are sharp. */

export const $ = (selector, root = document) => root.querySelector(selector);

/** A copy of a template's element. Whatever comes from a run goes in as textContent, never as markup. */
export const stamp = (id) => document.importNode($(`#${id}`).content.firstElementChild, true);

/** Sets the text of an element's parts, by class. */
export function fill(element, texts) {
  for (const [name, text] of Object.entries(texts)) $(`.${name}`, element).textContent = text;
}

/** Sets what a <select> offers, [[value, words], …]; leaves it alone when that has not changed. */
export function offer(select, pairs) {
  const key = JSON.stringify(pairs);
  if (select.offered !== key) select.replaceChildren(...pairs.map(([value, words]) => new Option(words, value)));
  select.offered = key;
}

/** A weight in words; it was stored in 8 bits of √p, so more digits would be made up. */
export function weight(p) {
  const size = Math.abs(p);
  if (size === 0) return "0";
  return (p < 0 ? "−" : "") + (size < 0.001 ? "<0.001" : size.toFixed(size < 0.1 ? 3 : 2));
}

/** A score or a loss in words, "–" where there is none. */
export function number(value, digits = 2, plus = "") {
  if (value == null) return "–";
  const text = Math.abs(value).toFixed(digits);
  return (Number(text) === 0 ? "" : value < 0 ? "−" : plus) + text;
}

/** `text` cut to `room` columns; a Chinese character or an emoji takes two. */
export function shorten(text, room) {
  const kept = [...text].filter((one) => (room -= one > "\u2e7f" ? 2 : 1) >= 0).join("");
  return kept === text ? text : `${kept}…`;
}

/** [row, column] of the cell under the pointer, in a table of `rows` × `columns` that fills `element`. */
export function cellAt(element, { clientX, clientY }, rows, columns) {
  const { left, top, width, height } = element.getBoundingClientRect();
  const place = (share, count) => Math.max(0, Math.min(count - 1, Math.floor(share * count)));
  return [place((clientY - top) / height, rows), place((clientX - left) / width, columns)];
}

/** The context of a cleared canvas of `width` × `height` CSS pixels. */
export function sharp(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== w || canvas.height !== h) Object.assign(canvas, { width: w, height: h });
  canvas.style.cssText = `width: ${width}px; height: ${height}px`;
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

/** The colours and fonts of the style sheet, by name; read once a theme. */
export const look = {};
export function readLook() {
  const style = getComputedStyle(document.documentElement);
  const names = "ink muted line accent surface ground cross halo sans mono";
  for (const name of names.split(" ")) look[name] = style.getPropertyValue(`--${name}`).trim();
}
