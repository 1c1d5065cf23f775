// Owns: the extremes of any range of a column, without looking at all of it. Must not know: what the column is of.

const STRIDE = 64; // events under one summary and between two check points of a grouping, blocks passed over at once

/** The highest and lowest places of a column, piece by piece, so that a range of a million is a few hundred steps. */
class Summary {
  constructor(values) {
    this.values = values;
    const pieces = Math.ceil(values.length / STRIDE);
    this.highest = new Uint32Array(pieces);
    this.lowest = new Uint32Array(pieces);
    for (let piece = 0; piece < pieces; piece += 1) {
      const from = piece * STRIDE;
      [this.highest[piece], this.lowest[piece]] = this.scan(from, Math.min(from + STRIDE, values.length), from, from);
    }
  }

  scan(from, to, high, low) {
    for (let at = from; at < to; at += 1) {
      if (this.values[at] > this.values[high]) high = at;
      if (this.values[at] < this.values[low]) low = at;
    }
    return [high, low];
  }

  /** Where the highest and the lowest value of [from, to) are; from < to. */
  extremes(from, to) {
    const first = Math.ceil(from / STRIDE);
    const last = Math.floor(to / STRIDE);
    if (first >= last) return this.scan(from, to, from, from);
    let [high, low] = this.scan(from, first * STRIDE, from, from);
    for (let piece = first; piece < last; piece += 1) {
      if (this.values[this.highest[piece]] > this.values[high]) high = this.highest[piece];
      if (this.values[this.lowest[piece]] < this.values[low]) low = this.lowest[piece];
    }
    return this.scan(last * STRIDE, to, high, low);
  }
}
