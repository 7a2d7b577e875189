/** The text, token by token: what a head makes of it, and how surprising each token was. */
import { $, fill, number, stamp, weight } from "./dom.js";

export class Text {
  spans = [];

  constructor(app) {
    this.app = app;
    const aim = (event, act) => {
      const i = this.spans.indexOf(event.target);
      if (i >= 0) act.apply(app, app.cell(i));
    };
    $("#tokens").onpointerover = (event) => aim(event, app.hover);
    $("#tokens").onpointerleave = () => app.unhover();
    $("#tokens").onclick = (event) => aim(event, app.keep);
  }

  show() {
    const { maps: { header: { tokens, loss } }, history } = this.app;
    if (tokens.length !== this.spans.length) {
      this.spans = tokens.map(() => stamp("token"));
      $("#tokens").replaceChildren(...this.spans);
    }
    const means = history?.headers.map((header) => header?.loss ?? 0) ?? loss ?? []; // one bar for all steps
    this.spans.forEach((span, i) => {
      const nats = loss?.[i - 1];
      if (span.textContent !== tokens[i]) span.textContent = tokens[i];
      span.style.setProperty("--loss", Math.min(1, (nats ?? 0) / 1.2 / Math.max(1, ...means)).toFixed(2));
      span.title = `token ${i}${nats == null ? "" : `: a surprise of ${number(nats)} nats`}`;
    });
    this.point();
  }

  /** Colours each token by its weight in the row, or the column, that is pointed at. */
  point() {
    const { maps, point: { query, key }, focus: [l, h] } = this.app;
    this.spans.forEach((span, i) => {
      const [t, s] = query >= 0 ? [query, i] : [i, key];
      const seen = maps.has(l) && s >= 0 && maps.visible(t, s);
      const alpha = seen ? 8 * Math.round(9 * Math.sqrt(maps.value(l, h, t, s))) : 0;
      if (alpha !== span.alpha) span.style.backgroundColor = alpha ? `rgb(var(--accent-rgb) / ${alpha}%)` : "";
      span.alpha = alpha;
      span.classList.toggle("query", i === query);
      span.classList.toggle("key", i === key);
    });
    const what = query >= 0 ? `where token ${query} looks` : key >= 0 ? `who looks at token ${key}` : "nothing";
    const bars = maps.header.loss ? " Bar below a token: how surprised the model was by it." : "";
    $("#legend").textContent = `Colour: ${what}, in L${l}H${h}.${bars}`;
  }
}

/** The strongest entries of the row and the column that are pointed at, in the chosen head. */
export function showTops(app) {
  const { query, key } = app.point;
  const row = topList(app, query, "looks at", (i) => [query, i]);
  $("#tops").replaceChildren(...row, ...topList(app, key, "is seen by", (i) => [i, key]));
}

function topList({ maps, selected: [l, h] }, of, verb, cell) {
  if (of < 0 || !maps.has(l)) return [];
  const { tokens } = maps.header;
  const list = stamp("top");
  fill(list, { token: tokens[of], verb: ` ${of} ${verb}` });
  const all = tokens.map((_, i) => i).filter((i) => maps.visible(...cell(i)));
  const ranked = all.map((i) => [maps.value(l, h, ...cell(i)), i]).sort(([a], [b]) => b - a);
  for (const [p, i] of ranked.slice(0, 8)) {
    const row = stamp("entry");
    fill(row, { token: tokens[i], where: i, value: weight(p) });
    $(".bar", row).style.width = `${100 * p}%`;
    row.dataset.do = `keep ${cell(i).join(" ")}`;
    $("ol", list).append(row);
  }
  return [list];
}
