// Owns: the picture of addresses at a moment: rows of memory as in a hex dump, blocks in the colours of their groups,
// holes in grey, pages underlined. Small regions share rows. Must not know: how regions are found.

const GUTTER = 116;
const MOST_ROWS_LAID = 10_000; // then the rows are too short in any case
const LEAST_ROW = 11, MOST_ROW = 24, ROW_GAP = 4;

class AddressMapView extends CanvasView {
  constructor(canvas, page) {
    super(canvas);
    this.page = page;
    this.pieces = [];
    canvas.addEventListener("click", (event) => {
      const block = this.blockAt(event.offsetX, event.offsetY);
      if (block >= 0) page.select(block);
    });
  }

  open(model) {
    this.addresses = new Addresses(model);
    this.model = model;
    this.state = null;
  }

  draw(context) {
    this.pieces = [];
    this.boxes = 0;
    if (!this.model?.blocks.count) return this.say("No blocks.");
    const event = this.page.moment;
    if (this.state?.event !== event) this.state = { event, ...this.addresses.at(event) };
    const rows = this.state.regions.length ? this.layOut(this.state.regions) : [];
    this.page.stateChanged(this.state, this.addresses.isKnown);
    if (!rows.length) return this.say("Nothing is out at this moment.");
    rows.forEach((row, place) => this.drawRow(context, row, 2 + place * (this.rowHeight + ROW_GAP)));
    this.drawMarks(context);
    return undefined;
  }

  /** Rows of pieces of regions, with the fewest bytes in a row that let everything fit. */
  layOut(regions) {
    const room = Math.max(Math.floor((this.height - 4) / (LEAST_ROW + ROW_GAP)), 1);
    const total = regions.reduce((sum, region) => sum + region.end - region.start, 0);
    let rowBytes = 2 ** Math.max(Math.ceil(Math.log2(Math.max(total / room, 64))), 6);
    let rows = this.rowsOf(regions, rowBytes);
    while (rows.length > room && rowBytes < 2 ** 60) rows = this.rowsOf(regions, (rowBytes *= 2));
    this.rowHeight = Math.min(MOST_ROW, Math.floor((this.height - 4) / rows.length) - ROW_GAP);
    this.rowBytes = rowBytes;
    return rows.slice(0, room);
  }

  rowsOf(regions, rowBytes) {
    const width = Math.max(this.width - GUTTER - 8, 10);
    const rows = [];
    let shared = null;
    for (const region of regions) {
      const size = region.end - region.start;
      if (size > rowBytes / 2) {
        const count = Math.ceil(size / rowBytes);
        for (let place = 0; place < count && rows.length < MOST_ROWS_LAID; place += 1) {
          const start = region.start + place * rowBytes;
          const end = Math.min(start + rowBytes, region.end);
          const piece = { region, start, end, x: GUTTER, width: ((end - start) / rowBytes) * width };
          rows.push({ label: this.addressLabel(start), pieces: [piece] });
        }
        continue;
      }
      const needs = Math.max((size / rowBytes) * width, 3);
      if (!shared || shared.used + needs > width) {
        shared = { label: this.addressLabel(region.start), pieces: [], used: 0 };
        rows.push(shared);
      }
      shared.pieces.push({ region, start: region.start, end: region.end, x: GUTTER + shared.used, width: needs });
      shared.used += needs + 5;
    }
    return rows;
  }

  addressLabel(address) {
    return this.addresses.isKnown ? formatAddress(address) : `+${formatBytes(address)}`;
  }

  drawRow(context, row, y) {
    context.font = theme.smallFont;
    context.textAlign = "right";
    context.fillStyle = theme.colors.soft;
    if (this.rowHeight >= 10) context.fillText(row.label, GUTTER - 10, y + this.rowHeight / 2 + 4);
    context.textAlign = "left";
    for (const piece of row.pieces) {
      this.pieces.push({ ...piece, y });
      this.drawHole(context, piece, y);
      this.drawBlocks(context, piece, y);
      this.drawPages(context, piece, y);
    }
    this.drawOwner(context, row.pieces[row.pieces.length - 1], y);
  }

  /** Whose memory a region is, beside its end where there is room. */
  drawOwner(context, { region, end, x, width }, y) {
    if (region.isLoose || end < region.end || this.rowHeight < 11) return;
    const left = x + width + 8;
    context.font = theme.smallFont;
    context.fillStyle = theme.colors.soft;
    const text = `${formatBytes(region.end - region.start)} of ${this.model.resourceName(region.resource)}`;
    if (context.measureText(text).width < this.width - left) context.fillText(text, left, y + this.rowHeight / 2 + 4);
  }

  drawHole(context, { x, width }, y) {
    context.fillStyle = theme.colors.hole;
    context.fillRect(x, y, width, this.rowHeight);
    context.strokeStyle = theme.colors.faint;
    context.lineWidth = 1;
    context.strokeRect(x + 0.5, y + 0.5, Math.max(width - 1, 1), this.rowHeight - 1);
  }

  drawBlocks(context, piece, y) {
    const scale = piece.width / (piece.end - piece.start);
    const pixel = 1 / this.ratio;
    let drawn = -1;
    for (let at = this.firstBehind(piece); at < piece.region.blocks.length; at += 1) {
      const block = piece.region.blocks[at];
      const start = this.addresses.startOf(block);
      if (start >= piece.end) break;
      const left = piece.x + Math.max(start - piece.start, 0) * scale;
      const right = piece.x + Math.min((start + this.model.bytesOf(block) - piece.start) * scale, piece.width);
      if (right < drawn + pixel) {
        // Many on one pixel: one of them is enough, and the others are not looked at.
        const behind = piece.start + (drawn + pixel - piece.x) / scale;
        at = Math.max(this.firstBehind({ region: piece.region, start: behind }) - 1, at);
        continue;
      }
      drawn = right;
      this.boxes += 1;
      context.globalAlpha = this.page.isDimmedBlock(block) ? 0.2 : 1;
      context.fillStyle = this.page.colorOf(block);
      const gap = right - left > 4 ? 1 : 0;
      context.fillRect(left, y, Math.max(right - left - gap, 0.6), this.rowHeight);
      if (this.rowHeight >= 13 && right - left > 46) {
        context.fillStyle = "#ffffff";
        this.label(this.page.mapLabel(block), left + 4, y + this.rowHeight / 2 + 4, right - left - 8);
      }
    }
    context.globalAlpha = 1;
  }

  /** The place of the first block of a region that ends behind the beginning of a piece. */
  firstBehind({ region, start }) {
    let [low, high] = [0, region.blocks.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      const block = region.blocks[middle];
      if (this.addresses.startOf(block) + this.model.bytesOf(block) <= start) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  drawPages(context, piece, y) {
    const scale = piece.width / (piece.end - piece.start);
    context.fillStyle = theme.colors.page;
    for (const [start, end] of piece.region.pages) {
      if (end <= piece.start || start >= piece.end) continue;
      const left = piece.x + Math.max(start - piece.start, 0) * scale;
      const right = piece.x + (Math.min(end, piece.end) - piece.start) * scale;
      context.fillRect(left, y + this.rowHeight, Math.max(right - left - 1, 1), 2);
    }
  }

  /** The block of the event at hand (dashed when it has just gone), and the selected one. */
  drawMarks(context) {
    const { page, model } = this;
    const current = page.moment >= 0 ? model.blockOf[page.moment] : -1;
    if (current >= 0) {
      context.setLineDash(model.events.kind[page.moment] === DEALLOCATE ? [3, 2] : []);
      this.frame(context, current, theme.colors.ink, 1.5);
      context.setLineDash([]);
    }
    if (page.selected >= 0) this.frame(context, page.selected, theme.colors.accent, 3);
  }

  frame(context, block, color, lineWidth) {
    context.strokeStyle = color;
    context.lineWidth = lineWidth;
    for (const { x, y, width } of this.boxesOf(block)) {
      context.strokeRect(x - 1, y - 1, Math.max(width, 2) + 2, this.rowHeight + 2);
    }
  }

  /** Where a block is, or would be, in the picture. */
  boxesOf(block) {
    if (!this.addresses.isKnown && !this.model.isLive(block, this.page.moment)) return [];
    const start = this.addresses.startOf(block);
    const end = start + this.model.bytesOf(block);
    return this.pieces.filter((piece) => piece.start < end && start < piece.end).map((piece) => {
      const scale = piece.width / (piece.end - piece.start);
      const left = piece.x + Math.max(start - piece.start, 0) * scale;
      return { x: left, y: piece.y, width: piece.x + (Math.min(end, piece.end) - piece.start) * scale - left };
    });
  }

  pieceAt(x, y) {
    const isIn = (at, start, size) => start <= at && at < start + size;
    return this.pieces.find((one) => isIn(y, one.y, this.rowHeight + ROW_GAP) && isIn(x, one.x, one.width));
  }

  addressAt(piece, x) {
    return piece.start + ((x - piece.x) / piece.width) * (piece.end - piece.start);
  }

  blockAt(x, y) {
    const piece = this.pieceAt(x, y);
    if (!piece) return -1;
    const address = this.addressAt(piece, x);
    const at = this.firstBehind({ region: piece.region, start: address });
    const block = piece.region.blocks[at] ?? -1;
    return block >= 0 && this.addresses.startOf(block) <= address ? block : -1;
  }

  hover(x, y) {
    const piece = this.model ? this.pieceAt(x, y) : null;
    if (!piece) return null;
    const block = this.blockAt(x, y);
    if (block >= 0) return [...this.page.blockLines(block), "click to select"];
    return [`hole at ${this.addressLabel(Math.floor(this.addressAt(piece, x)))}`, this.regionLine(piece.region)];
  }

  regionLine(region) {
    const size = formatBytes(region.end - region.start);
    if (region.isLoose) return `among blocks over ${size}`;
    return `in ${size} of ${this.model.resourceName(region.resource)}`;
  }
}
