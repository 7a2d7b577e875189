/** TensorBoard calls `render` once, in an empty frame. */

import { App } from "./app.js";
import { $, readLook } from "./dom.js";
import { connect, followTheme } from "./host.js";
import { DEFAULTS, read } from "./state.js";

export async function render() {
  const here = (name) => new URL(name, import.meta.url).href;
  const style = Object.assign(document.createElement("link"), { rel: "stylesheet", href: here("style.css") });
  const styled = new Promise((done) => (style.onload = style.onerror = done));
  document.head.append(style);
  const page = new DOMParser().parseFromString(await (await fetch(here("page.html"))).text(), "text/html");
  await styled;
  document.documentElement.lang = "en";
  document.body.replaceChildren(...page.body.childNodes);
  const app = new App();
  followTheme(() => {
    readLook();
    if (app.maps) app.show();
  });
  connect(() => app.reload());
  listen(app);
  await app.reload();
}

/** A control named after a part of the state sets it; data-do is a method of the App and its arguments. */
function listen(app) {
  const act = (element) => {
    const [name, ...words] = element?.dataset.do.split(" ") ?? [];
    if (name && app.maps) app[name](...words.map((word) => (Number.isNaN(Number(word)) ? word : Number(word))));
  };
  document.addEventListener("input", ({ target }) => {
    if (target.id === "steps") app.goTo(Number(target.value));
    else if (Object.hasOwn(DEFAULTS, target.name)) app.set({ [target.name]: read(target.name, target.value) });
  });
  document.addEventListener("click", ({ target }) => act(target.closest("[data-do]")));
  document.addEventListener("keydown", (event) => {
    const { key, shiftKey, target } = event;
    const name = key.length === 1 ? key.toLowerCase() : shiftKey ? `Shift ${key}` : key;
    const found = $(`kbd[data-key="${CSS.escape(name)}"]`);
    const taken = target.matches("select") || (key === " " && target.matches("button, summary"));
    if (!found || taken || event.ctrlKey || event.metaKey || event.altKey || $(".help").open) return;
    event.preventDefault();
    act(found);
  });
  window.addEventListener("resize", () => app.writeAddress()); // also: the tab has come to the front again
}
