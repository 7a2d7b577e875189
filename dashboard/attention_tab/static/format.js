/**
 * What the server sends: a header, which it has checked, and per layer gzip of one byte per weight,
 * round(255 √p), head after head, row after row; of causal attention only the lower triangle.
 * Row t is the token that looks (query), column s the one it looks at (key).
 */

/** Data that is not what it should be; the message says why. */
export class Damaged extends Error {}

/** Exactly `size` bytes out of a gzip stream; reading stops at the first byte too many. */
export async function inflate(stream, size) {
  const bytes = new Uint8Array(size);
  let filled = 0;
  const reader = stream.pipeThrough(new DecompressionStream("gzip")).getReader();
  try {
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      if (filled + part.value.length > size) throw new Damaged("it is longer than its shape allows");
      bytes.set(part.value, filled);
      filled += part.value.length;
    }
  } catch (error) {
    reader.cancel().catch(() => {});
    throw error instanceof Damaged ? error : new Damaged("it cannot be unpacked");
  }
  if (filled < size) throw new Damaged("it is shorter than its shape says");
  return bytes;
}

/** The maps of one run, probe and step. `layers[l]` holds bytes, an error, or nothing yet. */
export class Maps {
  signed = false;
  layers = [];
  loading = [];
  tops = [];

  constructor(header, fetchLayer) {
    const { length: T, causal } = header;
    Object.assign(this, { header, fetchLayer, size: causal ? (T * (T + 1)) / 2 : T * T }); // bytes a head
  }

  /** Resolves when layer l is there, or the reason why not. */
  load(l) {
    this.loading[l] ??= this.fetchLayer(l, this.header.heads * this.size)
      .catch((error) => {
        delete this.loading[l]; // asked again: the fault may have been the network's
        return error;
      })
      .then((layer) => (this.layers[l] = layer));
    return this.loading[l];
  }

  has(l) { return this.layers[l] instanceof Uint8Array; }
  visible(t, s) { return s <= t || !this.header.causal; }
  /** Where row t of head h begins in its layer. */
  start(h, t) { return h * this.size + (this.header.causal ? (t * (t + 1)) / 2 : t * this.header.length); }
  /** The weight, in [0, 1]. */
  value(l, h, t, s) { return (this.layers[l][this.start(h, t) + s] / 255) ** 2; }
  /** How far a byte is from nothing, from 0 to 255. */
  strength(byte) { return byte; }
  sharedTop() { return 1; }

  /** Where a head's own scale ends: below are all but the T / 2 strongest weights. */
  top(l, h) {
    const key = l * 256 + h;
    if (this.tops[key]) return this.tops[key];
    const counts = new Uint32Array(256);
    for (let i = this.start(h, 0); i < this.start(h + 1, 0); i++) counts[this.strength(this.layers[l][i])]++;
    let [left, byte] = [this.header.length / 2, 255];
    while (byte > 3 && (left -= counts[byte]) > 0) byte--;
    return (this.tops[key] = (byte / 255) ** 2);
  }
}

/** Second − first: a byte is 128 + 127 sign √|change|. */
export class Difference extends Maps {
  signed = true;

  constructor(first, second) {
    const odd = ["layers", "heads", "length", "causal"].find((key) => first.header[key] !== second.header[key]);
    if (odd) throw new Damaged(`has another shape: ${odd} ${first.header[odd]}, not ${second.header[odd]}`);
    super(second.header, async (l) => {
      const [a, b] = await Promise.all([first.load(l), second.load(l)]);
      for (const layer of [a, b]) if (layer instanceof Error) throw layer;
      return b.map((byte, i) => CHANGES[a[i] * 256 + byte]);
    });
    Object.assign(this, { first, second });
  }

  value(...cell) { return this.second.value(...cell) - this.first.value(...cell); }
  strength(byte) { return Math.min(255, 2 * Math.abs(byte - 128)); }

  /** Changes are often small, and on a scale to 1 none would show: the largest of the heads' own ends. */
  sharedTop() {
    const tops = (l) => Array.from({ length: this.header.heads }, (_, h) => this.top(l, h));
    return Math.max(...this.layers.flatMap((_, l) => (this.has(l) ? tops(l) : 0)));
  }

  /** How much of a head's attention is elsewhere: mean over rows of ½ Σ |change|, in [0, 1]. */
  moved(l, h) {
    const [a, b] = [this.first.layers[l], this.second.layers[l]];
    let sum = 0;
    for (let i = this.start(h, 0); i < this.start(h + 1, 0); i++) sum += Math.abs(b[i] ** 2 - a[i] ** 2);
    return sum / 65025 / 2 / this.header.length;
  }
}

const CHANGES = Uint8Array.from({ length: 65536 }, (_, i) => {
  const change = ((i & 255) ** 2 - (i >> 8) ** 2) / 65025;
  return Math.round(128 + 127 * Math.sign(change) * Math.sqrt(Math.abs(change)));
});
