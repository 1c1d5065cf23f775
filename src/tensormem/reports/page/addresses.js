// Owns: what lies where at a moment: regions (memory that pools took, pages that are mapped, or blocks that lie near
// one another), the program's blocks in them, and the holes between. Must not know: pixels.

class Addresses {
  constructor(model) {
    this.model = model;
    const { blocks, events } = model;
    this.start = new Float64Array(blocks.count);
    let [low, high] = [Infinity, 0];
    for (let block = 0; block < blocks.count; block += 1) {
      this.start[block] = events.address[blocks.event[block]];
      low = Math.min(low, this.start[block]);
      high = Math.max(high, this.start[block]);
    }
    this.isKnown = this.findPages().length > 0 || high > 0;
    this.order = Uint32Array.from({ length: blocks.count }, (_, block) => block);
    // Without addresses the order of allocation is all there is.
    for (let scale = 1; this.isKnown && scale <= high - low; scale *= 65536) {
      this.order = sortByDigit(this.order, this.start, low, scale);
    }
    // In that order too, because every step looks at all of them.
    this.begins = taken(blocks.start, this.order);
    this.ends = taken(blocks.end, this.order);
  }

  /** Every mapped piece of address range with the events of its beginning and end. */
  findPages() {
    const { model } = this;
    const { kind, address, nbytes, resource } = model.events;
    this.pages = [];
    let live = [];
    for (let event = 0; event < model.count; event += 1) {
      if (kind[event] === MAP) {
        const [start, end] = [address[event], address[event] + nbytes[event]];
        live.push({ start, end, from: event, to: model.count, resource: resource[event] });
      } else if (kind[event] === UNMAP) live = this.unmap(live, address[event], address[event] + nbytes[event], event);
    }
    this.pages.push(...live);
    this.pages.sort((one, two) => one.start - two.start);
    return this.pages;
  }

  unmap(live, start, end, event) {
    const left = [];
    for (const piece of live) {
      if (piece.end <= start || piece.start >= end) {
        left.push(piece);
        continue;
      }
      if (piece.start < start) left.push({ ...piece, end: start });
      if (piece.end > end) left.push({ ...piece, start: end });
      this.pages.push({ ...piece, start: Math.max(piece.start, start), end: Math.min(piece.end, end), to: event });
    }
    return left;
  }

  /** The state after an event: {regions, blocks, nbytes, holes}. */
  at(event) {
    const { model } = this;
    const mine = [];
    const containers = [];
    for (let place = 0; place < this.order.length; place += 1) {
      if (this.begins[place] > event || this.ends[place] <= event) continue;
      const block = this.order[place];
      if (model.depthOf(block) === 0) mine.push(block);
      else containers.push(this.containerOf(block));
    }
    for (const page of this.pages) {
      if (page.from <= event && event < page.to) containers.push({ ...page, isPage: true });
    }
    const regions = this.isKnown ? this.place(mine, joined(containers)) : this.endToEnd(mine);
    const held = regions.reduce((sum, region) => sum + region.end - region.start, 0);
    const nbytes = mine.reduce((sum, block) => sum + model.bytesOf(block), 0);
    return { regions, blocks: mine.length, nbytes, holes: Math.max(held - nbytes, 0) };
  }

  containerOf(block) {
    const { model } = this;
    const start = this.start[block];
    return { start, end: start + model.bytesOf(block), resource: model.events.resource[model.blocks.event[block]] };
  }

  /** Blocks into the regions that hold them; those that lie in none make regions with their neighbours. */
  place(mine, regions) {
    const { model } = this;
    const total = mine.reduce((sum, block) => sum + model.bytesOf(block), 0);
    const near = Math.max(2 ** 18, total / 64);
    const loose = [];
    let at = 0;
    for (const block of mine) {
      const [start, end] = [this.start[block], this.start[block] + model.bytesOf(block)];
      while (at < regions.length && regions[at].end <= start) at += 1;
      const region = regions[at];
      if (region && region.start <= start && end <= region.end) {
        region.blocks.push(block);
        continue;
      }
      const last = loose[loose.length - 1];
      if (last && start - last.end <= near) {
        last.blocks.push(block);
        last.end = Math.max(last.end, end);
      } else loose.push({ start, end, resource: 0, isLoose: true, pages: [], blocks: [block] });
    }
    return [...regions, ...loose].sort((one, two) => one.start - two.start);
  }

  endToEnd(mine) {
    let end = 0;
    this.invented = new Map();
    for (const block of mine) {
      this.invented.set(block, end);
      end += this.model.bytesOf(block);
    }
    return mine.length ? [{ start: 0, end, resource: 0, isLoose: true, pages: [], blocks: mine }] : [];
  }

  startOf(block) {
    return this.isKnown ? this.start[block] : this.invented?.get(block) ?? 0;
  }
}

/** Regions from what contains: overlapping ones are one, and so are pages that follow one another. */
function joined(containers) {
  const regions = [];
  for (const one of containers.sort((first, second) => first.start - second.start || second.end - first.end)) {
    const last = regions[regions.length - 1];
    const follows = last && (one.start < last.end || (one.isPage && last.isPage && one.start === last.end));
    if (!follows) {
      regions.push({ ...one, blocks: [], pages: one.isPage ? [[one.start, one.end]] : [] });
      continue;
    }
    last.end = Math.max(last.end, one.end);
    if (one.isPage) last.pages.push([one.start, one.end]);
  }
  return regions;
}
