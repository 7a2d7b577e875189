/** What is on the page as a PNG: its canvases, grounds and words, drawn again at twice the size. */
import { look } from "./dom.js";

const [SCALE, TOP] = [2, 40]; // finer than the screen; pixels for the heading

/** Downloads `element` as it is seen, under a heading. */
export async function savePicture(element, heading) {
  const { left, top, width, height } = element.getBoundingClientRect();
  const canvas = new OffscreenCanvas(Math.ceil(width * SCALE), Math.ceil((height + TOP) * SCALE));
  const context = canvas.getContext("2d");
  context.scale(SCALE, SCALE);
  context.fillStyle = look.ground;
  context.fillRect(0, 0, width, height + TOP);
  Object.assign(context, { fillStyle: look.ink, font: `600 15px ${look.sans}` }).fillText(heading, 12, 26);
  context.translate(-left, TOP - top);
  draw(context, element);
  const href = URL.createObjectURL(await canvas.convertToBlob());
  const download = `attention ${heading}.png`.replace(/[^\w.-]+/g, "-");
  Object.assign(document.createElement("a"), { href, download }).click();
  setTimeout(() => URL.revokeObjectURL(href), 10_000);
}

function draw(context, element) {
  const { left, top, width, height } = element.getBoundingClientRect();
  const style = getComputedStyle(element);
  if (!width || style.visibility === "hidden" || element.matches(".tools, .icon, .beside, .below, details")) return;
  context.save();
  context.beginPath();
  context.rect(left, top, width, height);
  context.fillStyle = style.backgroundColor;
  context.fill();
  if (style.overflowX !== "visible") context.clip();
  context.imageSmoothingEnabled = style.imageRendering !== "pixelated";
  if (element instanceof HTMLCanvasElement) context.drawImage(element, left, top, width, height);
  for (const child of element.childNodes) {
    if (child.nodeType === Node.ELEMENT_NODE) draw(context, child);
    else if (child.nodeType === Node.TEXT_NODE) write(context, child, style);
  }
  context.restore();
}

/** Text, word by word: it may run over several lines. */
function write(context, node, { color, fontWeight, fontSize, fontFamily }) {
  const range = document.createRange();
  const font = `${fontWeight} ${fontSize} ${fontFamily}`;
  Object.assign(context, { fillStyle: color, textBaseline: "middle", textAlign: "left", font });
  for (const { index, 0: word } of node.data.matchAll(/\S+/g)) {
    range.setStart(node, index);
    range.setEnd(node, index + word.length);
    const { left, top, height } = range.getBoundingClientRect();
    if (height) context.fillText(word, left, top + height / 2);
  }
}
