// Owns: the program's blocks by size and by when they began, in columns of numbers, and which of them are out at some
// events: the largest first, and those out of sight passed over piece by piece. Must not know: pixels.

const SIZE_CLASSES = 256;

/** Sizes in steps of a quarter of a doubling. */
function sizeClassOf(nbytes) {
  return Math.min(Math.floor(Math.log2(nbytes + 1) * 4), SIZE_CLASSES - 1);
}

class BlockOrder {
  constructor(model) {
    this.block = this.byBeginning(model);
    this.count = this.block.length;
    this.start = taken(model.blocks.start, this.block);
    this.end = taken(model.blocks.end, this.block);
    this.nbytes = Float64Array.from(this.block, (block) => model.bytesOf(block));
    this.classes = this.bySize();
    this.isChosen = new Uint32Array(Math.ceil(this.count / 32)); // a bit for each
    this.found = new Uint32Array(this.count);
    this.visited = 0;
  }

  /** Their numbers are in this order already, but for those that began before the window. */
  byBeginning(model) {
    const { blocks } = model;
    const mine = new Uint32Array(blocks.count);
    let count = 0;
    for (const isBefore of [true, false]) {
      for (let block = 0; block < blocks.count; block += 1) {
        if (blocks.start[block] < 0 === isBefore && model.depthOf(block) === 0) mine[count++] = block;
      }
    }
    return mine.slice(0, count);
  }

  /** [{most, places, latest}], the largest first: the places of a class of sizes and the last end in every piece. */
  bySize() {
    const ofPlace = Uint8Array.from(this.nbytes, sizeClassOf);
    const counts = new Uint32Array(SIZE_CLASSES);
    for (const one of ofPlace) counts[one] += 1;
    const classes = Array.from(counts, (count) => ({ most: 0, count: 0, places: new Uint32Array(count) }));
    for (let place = 0; place < this.count; place += 1) {
      const one = classes[ofPlace[place]];
      one.places[one.count++] = place;
      one.most = Math.max(one.most, this.nbytes[place]);
    }
    const kept = classes.filter((one) => one.count > 0).reverse();
    for (const one of kept) one.latest = this.latestEnds(one.places);
    return kept;
  }

  latestEnds(places) {
    const latest = new Int32Array(Math.ceil(places.length / STRIDE)).fill(-1);
    for (let at = 0; at < places.length; at += 1) {
      const piece = Math.floor(at / STRIDE);
      latest[piece] = Math.max(latest[piece], this.end[places[at]]);
    }
    return latest;
  }

  /** The places of blocks that are out after any of some events (which come in order), by when they began: all that
   * have so many bytes, class after class of smaller ones while those are not more than `most`, and `also` a block.
   * What it gives is good until it is asked again. */
  outAt(events, { nbytes, most, also }) {
    const { found } = this;
    let smaller = 0;
    this.visited = 0;
    this.isChosen.fill(0);
    for (const one of this.classes) {
      const room = one.most >= nbytes ? Infinity : most - smaller;
      const count = this.collect(one, events, room, found);
      if (count > room) break;
      if (room !== Infinity) smaller += count;
      for (let at = 0; at < count; at += 1) this.choose(found[at]);
    }
    const place = also < 0 ? -1 : this.block.indexOf(also);
    if (place >= 0) this.choose(place);
    return this.chosen(found);
  }

  /** Those of a class that are out after any of the events; it gives up when there are more than there is room for. */
  collect({ places, latest }, events, room, found) {
    const { start, end } = this;
    const last = events[events.length - 1];
    let column = 0;
    let count = 0;
    for (let from = 0; from < places.length && start[places[from]] <= last; from += STRIDE) {
      if (latest[from / STRIDE] <= events[0]) continue;
      if (count > room) break;
      const to = Math.min(from + STRIDE, places.length);
      this.visited += to - from;
      for (let at = from; at < to; at += 1) {
        const place = places[at];
        if (start[place] > last) break;
        while (events[column] < start[place]) column += 1;
        if (end[place] > events[column]) found[count++] = place;
      }
    }
    return count;
  }

  choose(place) {
    this.isChosen[place >>> 5] |= 1 << (place & 31);
  }

  /** What was chosen, in order: the bits of a million blocks are thirty thousand numbers. */
  chosen(into) {
    let count = 0;
    for (let word = 0; word < this.isChosen.length; word += 1) {
      for (let bits = this.isChosen[word]; bits !== 0; bits &= bits - 1) {
        into[count++] = word * 32 + 31 - Math.clz32(bits & -bits);
      }
    }
    return into.subarray(0, count);
  }
}
