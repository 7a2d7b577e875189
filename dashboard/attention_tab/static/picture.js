/** What is on the page as a PNG: its canvases, backgrounds and words, drawn again at twice the size. */

import { hatch, look } from "./dom.js";

/** Downloads `element` as it is seen, under a heading. */
export async function savePicture(element, heading) {
  const box = element.getBoundingClientRect();
  const [scale, top] = [2, 40];
  const canvas = new OffscreenCanvas(Math.ceil(box.width * scale), Math.ceil((box.height + top) * scale));
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  context.fillStyle = look.ground;
  context.fillRect(0, 0, box.width, box.height + top);
  Object.assign(context, { fillStyle: look.ink, font: `600 15px ${look.sans}` });
  context.fillText(heading, 12, 26);
  context.translate(-box.left, top - box.top);
  draw(context, element);
  const url = URL.createObjectURL(await canvas.convertToBlob({ type: "image/png" }));
  const link = document.createElement("a");
  Object.assign(link, { href: url, download: `attention ${heading}.png`.replace(/[^\w.-]+/g, "-") });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

function draw(context, element) {
  const box = element.getBoundingClientRect();
  const style = getComputedStyle(element);
  if (!box.width || style.visibility === "hidden" || element.matches(".tools, .icon, details")) return;
  context.fillStyle = style.backgroundColor;
  context.fillRect(box.left, box.top, box.width, box.height);
  if (element.matches(".map")) hatch(context, box.left, box.top, box.width);
  if (element instanceof HTMLCanvasElement && element.width) {
    context.imageSmoothingEnabled = style.imageRendering !== "pixelated";
    context.drawImage(element, box.left, box.top, box.width, box.height);
  }
  for (const child of element.childNodes) {
    if (child.nodeType === Node.ELEMENT_NODE) draw(context, child);
    else if (child.nodeType === Node.TEXT_NODE && child.data.trim()) write(context, child, style);
  }
}

/** A text node, word by word where it runs over several lines. */
function write(context, node, style) {
  const range = document.createRange();
  Object.assign(context, { fillStyle: style.color, textBaseline: "middle", textAlign: "left" });
  context.font = `${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
  for (const { index, 0: word } of node.data.matchAll(/\S+/g)) {
    range.setStart(node, index);
    range.setEnd(node, index + word.length);
    const box = range.getClientRects()[0];
    if (box) context.fillText(word, box.left, box.top + box.height / 2);
  }
}
