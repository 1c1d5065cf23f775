// Owns: usage drawn block by block: a band for each block that is a pixel high, and for smaller ones while they are few,
// from its beginning to its end, lying on those that are older. The smaller ones of a group are one paler band on top.
// No picture has room for more bands than it has pixels, so the cost is that of the picture and not of the trace.
// Must not know: what is picked and why.

const MOST_SMALL_BANDS = 2000;
const SHADES = 5; // neighbours of one group differ a little
const FILLS = SHADES * 2 + 1; // of a group: its shades plain, the same dimmed, and that of the selected block
const REST_ALPHA = 130;

class BlockBands {
  constructor(view, sheet, { high }) {
    const { model, page } = view;
    this.page = page;
    this.sheet = sheet;
    this.events = high; // for each column of pixels the event whose state it shows
    this.order = model.order;
    this.groups = page.colorGrouping;
    this.scale = sheet.height / view.top;
    this.places = this.order.outAt(high, { nbytes: 1 / this.scale, most: MOST_SMALL_BANDS, also: page.selected });
    this.rest = new Float64Array(this.groups.size);
    this.run = { count: 0, tops: [], bottoms: [], owners: [], fills: [] };
    this.boxes = 0;
    this.steps = 0;
    this.mixColors();
    this.paint();
  }

  /** Every fill that a band can have, as a table. */
  mixColors() {
    const { size } = this.groups;
    const accent = parseColor(theme.colors.accent);
    [this.fills, this.edges, this.rests] = [size * FILLS, size * FILLS, size].map((count) => new Uint32Array(count));
    for (let group = 0; group < size; group += 1) {
      const color = parseColor(theme.group(this.groups, group));
      for (let shade = 0; shade < FILLS - 1; shade += 1) {
        const alpha = shade < SHADES ? 255 : 60;
        this.fills[group * FILLS + shade] = packColor(color, 0.82 + (shade % SHADES) * 0.07, alpha);
        this.edges[group * FILLS + shade] = packColor(color, 0.6, alpha);
      }
      this.fills[group * FILLS + FILLS - 1] = packColor(accent, 1);
      this.edges[group * FILLS + FILLS - 1] = packColor(accent, 0.6);
      const isPale = this.page.found || this.page.isDimmed(group);
      this.rests[group] = packColor(color, 1, isPale ? REST_ALPHA / 4 : REST_ALPHA);
    }
  }

  fillOf(block) {
    const shade = ((block * 7) % SHADES) + (this.page.isDimmedBlock(block) ? SHADES : 0);
    return this.groups.groupOf(block) * FILLS + (block === this.page.selected ? FILLS - 1 : shade);
  }

  /** Columns that show the same event are painted at once. */
  paint() {
    const { events, order, places, sheet } = this;
    const active = new Uint32Array(places.length);
    const fill = new Uint16Array(places.length);
    let count = 0;
    let next = 0;
    for (let from = 0, to = 0; from < sheet.width; from = to) {
      const event = events[from];
      while (to < sheet.width && events[to] === event) to += 1;
      let kept = 0;
      for (let at = 0; at < count; at += 1) {
        if (order.end[active[at]] <= event) continue;
        active[kept] = active[at];
        fill[kept++] = fill[at];
      }
      for (; next < places.length && order.start[places[next]] <= event; next += 1) {
        if (order.end[places[next]] <= event) continue;
        active[kept] = places[next];
        fill[kept++] = this.fillOf(order.block[places[next]]);
      }
      count = kept;
      this.steps += count;
      this.layOut(event, active, fill, count);
      this.paintRun(from, to);
    }
  }

  rowOf(nbytes) {
    const { height } = this.sheet;
    return Math.min(Math.max(height - Math.round(nbytes * this.scale), 0), height);
  }

  /** Puts the bands of an event into `run`, from the bottom to the top: first blocks, then what is left of groups. */
  layOut(event, active, fill, count) {
    const { order, run } = this;
    const rest = this.groups.at(event, this.rest);
    let sum = 0;
    let bottom = this.sheet.height;
    run.count = 0;
    for (let at = 0; at < count; at += 1) {
      const nbytes = order.nbytes[active[at]];
      rest[Math.floor(fill[at] / FILLS)] -= nbytes;
      const top = this.rowOf((sum += nbytes));
      if (top < bottom) this.addBand(top, bottom, order.block[active[at]], fill[at]);
      bottom = Math.min(top, bottom);
    }
    for (let group = 0; group < rest.length; group += 1) {
      if (rest[group] <= 0) continue;
      const top = this.rowOf((sum += rest[group]));
      if (top < bottom) this.addBand(top, bottom, -2 - group, 0);
      bottom = Math.min(top, bottom);
    }
  }

  addBand(top, bottom, owner, fill) {
    const { run } = this;
    run.tops[run.count] = top;
    run.bottoms[run.count] = bottom;
    run.owners[run.count] = owner;
    run.fills[run.count] = fill;
    run.count += 1;
  }

  paintRun(from, to) {
    const { sheet } = this;
    const { count, tops, bottoms, owners, fills } = this.run;
    this.boxes += count;
    for (let at = 0; at < count; at += 1) {
      const color = owners[at] < 0 ? this.rests[-2 - owners[at]] : this.fills[fills[at]];
      sheet.fillBox(from, to, tops[at], bottoms[at], color);
      const hasEdge = owners[at] >= 0 && bottoms[at] - tops[at] > 3;
      if (hasEdge) sheet.fillBox(from, to, tops[at], tops[at] + 1, this.edges[fills[at]]);
    }
  }

  /** Whose a pixel is: a block, -2 and less for the smaller blocks of a group, or -1. */
  ownerAt(column, row) {
    if (column < 0 || column >= this.sheet.width) return -1;
    const { start, end, block } = this.order;
    const event = this.events[column];
    const active = this.places.filter((place) => start[place] <= event && end[place] > event);
    this.layOut(event, active, Array.from(active, (place) => this.fillOf(block[place])), active.length);
    const { count, tops, bottoms, owners } = this.run;
    for (let at = 0; at < count; at += 1) if (tops[at] <= row && row < bottoms[at]) return owners[at];
    return -1;
  }

  /** The block of a pixel, or -1. */
  at(column, row) {
    return Math.max(this.ownerAt(column, row), -1);
  }

  /** The group whose smaller blocks are one band there, and their bytes; null where that is not so. */
  restAt(column, row) {
    const group = -2 - this.ownerAt(column, row);
    return group < 0 ? null : { name: this.groups.names[group], nbytes: this.rest[group] };
  }
}
