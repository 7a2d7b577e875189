/** TensorBoard around the page, an iframe of the same origin; where it is not, the page does without. */

/** Answers every message of TensorBoard's, and calls `reloaded` when it has read its data again. */
export function connect(reloaded) {
  if (window.parent === window) return;
  const { port1, port2 } = new MessageChannel();
  port1.onmessage = ({ data }) => {
    const { type, id, isReply } = JSON.parse(data);
    if (isReply) return;
    if (type === "experimental.DataReloaded") reloaded();
    port1.postMessage(JSON.stringify({ type, id, payload: null, error: null, isReply: true }));
  };
  window.parent.postMessage("experimental.bootstrap", "*", [port2]);
}

/** The window whose address is seen; reading it fails where the parent is of another origin. */
function frame() {
  try {
    return window.parent.document ? window.parent : window;
  } catch {
    return window;
  }
}

/** Read directly: TensorBoard 2.21 answers GetURLPluginData with {} on the first load. */
export const readHash = () => frame().location.hash;
export const watchHash = (changed) => frame().addEventListener("hashchange", changed);

/** Writes the address's fragment, unless another tab of TensorBoard is in front. */
export function writeHash(hash) {
  const { location, history } = frame();
  if (isShown() && /^(#attention|$)/.test(location.hash) && location.hash !== hash) {
    history.replaceState(history.state, "", hash);
  }
}

/** A tab in the background is "visible" to the browser, but it has no height. */
export const isShown = () => window.innerHeight > 0 && document.visibilityState === "visible";
export const isDark = () => document.documentElement.dataset.theme === "dark";

/** Keeps `data-theme` as TensorBoard's theme is, or the system's where there is no TensorBoard. */
export function followTheme(changed) {
  const body = frame() !== window && frame().document.body;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const apply = () => {
    const dark = body ? body.classList.contains("dark-mode") : system.matches;
    document.documentElement.dataset.theme = dark ? "dark" : "light";
    changed();
  };
  if (body) new MutationObserver(apply).observe(body, { attributeFilter: ["class"] });
  else system.addEventListener("change", apply);
  apply();
}
