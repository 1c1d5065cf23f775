// Owns: finding a block by its resource and generation, a million times a second. Must not know: what a block is.

/** Finds a block by its resource and generation; the newest of that key. */
class BlockTable {
  constructor(columns, blocks, most) {
    this.columns = columns;
    this.blocks = blocks;
    this.mask = 2 ** Math.ceil(Math.log2(Math.max(most * 2, 16))) - 1;
    this.slots = new Int32Array(this.mask + 1).fill(-1);
  }

  slot(event) {
    const { resource, generation } = this.columns;
    let at = (Math.imul(generation[event] >>> 0, 0x9e3779b1) ^ Math.imul(resource[event], 0x85ebca6b)) >>> 7;
    for (at &= this.mask; this.slots[at] >= 0; at = (at + 1) & this.mask) {
      const known = this.blocks.event[this.slots[at]];
      if (generation[known] === generation[event] && resource[known] === resource[event]) break;
    }
    return at;
  }
}
