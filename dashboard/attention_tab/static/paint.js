/** Maps as pixels. What a row may not see stays transparent: the hatching behind it shows through. */

const images = new Map();
/** A buffer for each size, cleared; `putImageData` copies it. */
export function scratch(width, height) {
  const key = `${width} ${height}`;
  if (images.size > 64) images.clear();
  const image = images.get(key) ?? new ImageData(width, height);
  images.set(key, image);
  image.pixels ??= new Uint32Array(image.data.buffer);
  image.pixels.fill(0);
  return image;
}

/** `count` rows and columns of a head from [row, column] on; a pixel is the strongest of factor × factor cells,
 *  since a thin diagonal must not fade because the picture is small. */
export function paintWindow(pixels, maps, l, h, lut, [top, left], count, factor) {
  const bytes = maps.layers[l];
  const wide = Math.ceil(count / factor);
  const best = new Int16Array(wide);
  for (let t = top; t < top + count; t++) {
    const start = maps.start(h, t);
    const end = maps.header.causal ? Math.min(t + 1, left + count) : left + count;
    let out = Math.floor((t - top) / factor) * wide;
    if (factor === 1) {
      for (let s = left; s < end; s++) pixels[out++] = lut[bytes[start + s]];
      continue;
    }
    if ((t - top) % factor === 0) best.fill(-1);
    for (let s = left; s < end; s++) {
      const [x, byte] = [Math.floor((s - left) / factor), bytes[start + s]];
      if (best[x] >= 0 && maps.strength(byte) <= maps.strength(best[x])) continue;
      best[x] = byte;
      pixels[out + x] = lut[byte];
    }
  }
}

/** A whole head, on a canvas of about `most` pixels a side or less. */
export function paintHead(canvas, maps, l, h, lut, most = 192) {
  const T = maps.header.length;
  const factor = Math.max(1, Math.round(T / most));
  const side = Math.ceil(T / factor);
  const image = scratch(side, side);
  paintWindow(image.pixels, maps, l, h, lut, [0, 0], T, factor);
  if (canvas.width !== side) Object.assign(canvas, { width: side, height: side });
  canvas.getContext("2d").putImageData(image, 0, 0);
}

/** Row t of a head as a line of pixels, or its column s; the other of the two is −1. */
export function paintLine(canvas, maps, l, h, lut, t, s) {
  const T = maps.header.length;
  const [image, bytes] = [t >= 0 ? scratch(T, 1) : scratch(1, T), maps.layers[l]];
  for (let i = 0; i < T; i++) {
    const [row, column] = t >= 0 ? [t, i] : [i, s];
    if (maps.visible(row, column)) image.pixels[i] = lut[bytes[maps.start(h, row) + column]];
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
}
