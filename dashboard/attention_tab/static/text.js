/** The text, token by token: what a head makes of it, and how surprising each token was. */

import { $, look, number, stamp, weight } from "./dom.js";

export class Text {
  spans = [];

  constructor(app) {
    this.app = app;
    const aim = (event, act) => {
      const i = this.spans.indexOf(event.target);
      if (i >= 0) act.apply(app, app.state.toward === "from" ? [i, -1] : [-1, i]);
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
    const means = history?.headers.map((header) => header?.loss ?? 0) ?? loss ?? [];
    const worst = 1.2 * Math.max(1, ...means); // what a full bar stands for: the same at all steps
    this.spans.forEach((span, i) => {
      const nats = loss?.[i - 1];
      if (span.textContent !== tokens[i]) span.textContent = tokens[i];
      span.style.setProperty("--loss", Math.min(1, (nats ?? 0) / worst).toFixed(2));
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
      const alpha = seen ? Math.round(72 * Math.sqrt(maps.value(l, h, t, s))) : 0;
      if (alpha !== span.alpha) span.style.backgroundColor = alpha ? `rgb(${look["accent-rgb"]} / ${alpha}%)` : "";
      span.alpha = alpha;
    });
    for (const [name, i] of [["query", query], ["key", key]]) {
      $(`#tokens .${name}`)?.classList.remove(name);
      this.spans[i]?.classList.add(name);
    }
    const what = query >= 0 ? `Colour: where token ${query} looks, in L${l}H${h}. ` : `Colour: who looks at token ${key}, in L${l}H${h}. `;
    const bars = maps.header.loss ? "Bar below a token: how surprised the model was by it." : "";
    $("#legend").textContent = (query >= 0 || key >= 0 ? what : "") + bars;
  }
}

/** The strongest entries of the row and the column that are pointed at, in the chosen head. */
export function showTops(app) {
  const { query, key } = app.point;
  const row = topList(app, query, "looks at", (i) => [query, i]);
  const column = topList(app, key, "is seen by", (i) => [i, key]);
  $("#tops").replaceChildren(...row, ...column);
}

function topList({ maps, selected: [l, h] }, of, verb, cell) {
  if (of < 0 || !maps.has(l)) return [];
  const { tokens } = maps.header;
  const list = stamp("top");
  $(".token", list).textContent = tokens[of];
  $(".verb", list).textContent = ` ${of} ${verb}`;
  const all = tokens.map((token, i) => ({ token, i, at: cell(i) })).filter(({ at }) => maps.visible(...at));
  for (const one of all) one.p = maps.value(l, h, ...one.at);
  for (const { token, i, at, p } of all.sort((a, b) => b.p - a.p).slice(0, 8)) {
    const row = stamp("entry");
    $(".token", row).textContent = token;
    $(".where", row).textContent = i;
    $(".value", row).textContent = weight(p);
    $(".bar", row).style.width = `${100 * p}%`;
    row.dataset.do = `keep ${at.join(" ")}`;
    $("ol", list).append(row);
  }
  return [list];
}
