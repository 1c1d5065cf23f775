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
    this.starts = taken(this.start, this.order);
    this.sizes = Float64Array.from(this.order, (block) => model.bytesOf(block));
    this.depths = Uint8Array.from(this.order, (block) => model.depthOf(block));
    this.invented = this.isKnown ? null : new Float64Array(blocks.count);
    [this.mine, this.held, this.loose] = Array.from({ length: 3 }, () => new Uint32Array(blocks.count));
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

  /** The state after an event: {regions, blocks, nbytes, holes}; good until it is asked again. */
  at(event) {
    const containers = [];
    let count = 0;
    let nbytes = 0;
    for (let place = 0; place < this.order.length; place += 1) {
      if (this.begins[place] > event || this.ends[place] <= event) continue;
      if (this.depths[place] === 0) {
        this.mine[count++] = place;
        nbytes += this.sizes[place];
      } else containers.push(this.containerOf(this.order[place]));
    }
    const mine = this.mine.subarray(0, count);
    for (const page of this.pages) {
      if (page.from <= event && event < page.to) containers.push({ ...page, isPage: true });
    }
    const regions = this.isKnown ? this.place(mine, nbytes, joined(containers)) : this.endToEnd(mine);
    const held = regions.reduce((sum, region) => sum + region.end - region.start, 0);
    return { regions, blocks: mine.length, nbytes, holes: Math.max(held - nbytes, 0) };
  }

  containerOf(block) {
    const { model } = this;
    const start = this.start[block];
    return { start, end: start + model.bytesOf(block), resource: model.events.resource[model.blocks.event[block]] };
  }

  /** Blocks into the regions that hold them; those that lie in none make regions with their neighbours. They come by
   * address, so those of a region follow one another: its blocks are a part of a longer array. */
  place(mine, total, regions) {
    const near = Math.max(2 ** 18, total / 64);
    const loose = [];
    let [at, held, apart] = [0, 0, 0];
    for (const place of mine) {
      const start = this.starts[place];
      const end = start + this.sizes[place];
      while (at < regions.length && regions[at].end <= start) at += 1;
      const region = regions[at];
      if (region && region.start <= start && end <= region.end) {
        region.first ??= held;
        this.held[held++] = this.order[place];
        region.behind = held;
        continue;
      }
      let last = loose[loose.length - 1];
      if (!last || start - last.end > near) {
        last = { start, end, resource: 0, isLoose: true, pages: [], first: apart };
        loose.push(last);
      }
      this.loose[apart++] = this.order[place];
      last.behind = apart;
      last.end = Math.max(last.end, end);
    }
    for (const region of regions) region.blocks = this.held.subarray(region.first ?? 0, region.behind ?? 0);
    for (const region of loose) region.blocks = this.loose.subarray(region.first, region.behind);
    return [...regions, ...loose].sort((one, two) => one.start - two.start);
  }

  endToEnd(mine) {
    let end = 0;
    const blocks = mine.map((place) => this.order[place]);
    for (const block of blocks) {
      this.invented[block] = end;
      end += this.model.bytesOf(block);
    }
    return blocks.length ? [{ start: 0, end, resource: 0, isLoose: true, pages: [], blocks }] : [];
  }

  startOf(block) {
    return this.isKnown ? this.start[block] : this.invented[block];
  }
}

/** Regions from what contains: overlapping ones are one, and so are pages that follow one another. */
function joined(containers) {
  const regions = [];
  for (const one of containers.sort((first, second) => first.start - second.start || second.end - first.end)) {
    const last = regions[regions.length - 1];
    const follows = last && (one.start < last.end || (one.isPage && last.isPage && one.start === last.end));
    if (!follows) {
      regions.push({ ...one, pages: one.isPage ? [[one.start, one.end]] : [] });
      continue;
    }
    last.end = Math.max(last.end, one.end);
    if (one.isPage) last.pages.push([one.start, one.end]);
  }
  return regions;
}
