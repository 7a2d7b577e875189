/** TensorBoard calls `render` once, in an empty frame. */
import { App } from "./app.js";
import { $, readLook } from "./dom.js";
import { connect, followTheme, watchHash } from "./host.js";
import { DEFAULTS, read } from "./state.js";

export async function render() {
  const file = async (name) => (await fetch(new URL(name, import.meta.url))).text();
  const page = new DOMParser().parseFromString(await file("page.html"), "text/html");
  document.adoptedStyleSheets = [await new CSSStyleSheet().replace(await file("style.css"))];
  document.documentElement.lang = "en";
  document.body.replaceChildren(...page.body.childNodes);
  const app = new App();
  followTheme(() => app.maps ? app.show(readLook()) : readLook());
  connect(() => app.reload());
  watchHash(() => app.readAddress());
  listen(app);
  window.focus(); // keys work without a click
  await app.reload();
}

const ALWAYS = ["explain", "follow", "goTo", "moveStep", "play", "put"]; // what needs no maps

/** A control named after a part of the state sets it; data-do is a method of the App and its arguments. */
function listen(app) {
  const act = (element) => {
    const [name, ...words] = element?.dataset.do.split(" ") ?? [];
    const values = words.map((word) => (Number.isNaN(Number(word)) ? word : Number(word)));
    if (name && (app.maps || ALWAYS.includes(name))) app[name](...values);
  };
  document.addEventListener("input", ({ target }) => {
    if (target.id === "steps") app.goTo(Number(target.value));
    else if (Object.hasOwn(DEFAULTS, target.name)) app.set({ [target.name]: read(target.name, target.value) });
  });
  const tidy = (target) => { // what hangs open closes, unless that is where the click went
    for (const one of document.querySelectorAll("details[open]")) one.open = one.contains(target);
  };
  document.addEventListener("click", ({ target }) => act(target.closest("[data-do]"), tidy(target)));
  document.addEventListener("keydown", (event) => {
    const { key, shiftKey, target } = event;
    const name = key.length === 1 ? key.toLowerCase() : shiftKey ? `Shift ${key}` : key;
    const found = $(`kbd[data-key="${CSS.escape(name)}"]`);
    const taken = target.matches("select, input[name]") || (key === " " && target.matches("button, summary"));
    if (!found || taken || event.ctrlKey || event.metaKey || event.altKey || $(".help").open) return;
    event.preventDefault();
    act(found);
  });
  document.addEventListener("pointerup", () => setTimeout(() => $("[type=radio]:focus")?.blur())); // arrows: steps
  window.addEventListener("resize", () => window.focus(app.writeAddress())); // also: the tab is in front again
}
