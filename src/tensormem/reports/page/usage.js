// Owns: the chart of usage under the pointer: what is read out, the range that is drawn over it, the moment or the
// block that is picked. Must not know: the other views; it tells the page.

class UsageView extends UsagePicture {
  constructor(canvas, page) {
    super(canvas, page);
    this.hovered = null;
    this.drag = null;
    canvas.addEventListener("pointerdown", (event) => this.press(event));
    canvas.addEventListener("pointerup", (event) => this.release(event));
    canvas.addEventListener("pointercancel", () => this.cancel());
    canvas.addEventListener("dblclick", () => this.reset());
    canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
  }

  open(model) {
    this.model = model;
    this.hovered = null;
    this.reset();
  }

  hover(x, y, event) {
    const { model, plot } = this;
    if (!model?.count) return null;
    if (this.drag) this.dragTo(x, event);
    if (x < plot.left || x > plot.left + plot.width || y < 0) {
      this.leave();
      return null;
    }
    this.hovered = x;
    const at = this.eventAt(x);
    this.page.hoverEvent(at);
    this.invalidate();
    if (this.drag?.isRange) return [this.spanText(this.drag.start, this.drag.now)];
    return this.linesAt(at, x, y);
  }

  spanText(one, two) {
    const span = Math.abs(this.valueAt(two) - this.valueAt(one));
    return this.axis === "events" ? `${formatCount(span)} events` : formatSpan(span, this.model.unit);
  }

  linesAt(at, x, y) {
    const { model, page } = this;
    const held = model.held ? ` · ${formatBytes(at < 0 ? 0 : model.held[at])} held` : "";
    const lines = [
      `${formatMoment(model.timeAt(at), model.unit, this.times[1] - this.times[0])} · event ${formatCount(at + 1)}`,
      `${formatBytes(model.totalAt(at))} in use${held}`,
    ];
    const block = this.blockAt(x, y);
    const rest = block < 0 ? this.bands?.restAt(...this.pixelAt(x, y)) : null;
    const group = this.groupAt(at, y);
    if (block >= 0) lines.push(page.blockTitle(block));
    else if (rest) lines.push(`smaller blocks, ${rest.name}: ${formatBytes(rest.nbytes)} together`);
    else if (group >= 0) lines.push(`${page.grouping.names[group]}: ${formatBytes(page.grouping.at(at)[group])}`);
    return lines;
  }

  groupAt(event, y) {
    const { grouping } = this.page;
    if (grouping.by === "block") return -1;
    let sum = 0;
    return grouping.at(event).findIndex((nbytes) => {
      sum += nbytes;
      return nbytes > 0 && this.yOf(sum) <= y && y <= this.yOf(sum - nbytes);
    });
  }

  /** The block under a point, when blocks are drawn one by one; otherwise -1. */
  blockAt(x, y) {
    return this.bands ? this.bands.at(...this.pixelAt(x, y)) : -1;
  }

  /** What the last picture block by block was made of; null when it was another. */
  bandsFacts() {
    if (!this.bands) return null;
    const { sheet, boxes, steps, places, order } = this.bands;
    return { columns: sheet.width, rows: sheet.height, blocks: places.length, visited: order.visited, boxes, steps };
  }

  pixelAt(x, y) {
    return [x - this.plot.left, y - this.plot.top].map((side) => Math.floor(side * this.ratio));
  }

  leave() {
    if (this.hovered === null) return;
    this.hovered = null;
    this.page.hoverEvent(null);
    this.invalidate();
  }

  press(event) {
    if (event.button !== 0 || !this.model?.count) return;
    this.canvas.setPointerCapture(event.pointerId);
    const start = event.offsetX;
    this.drag = { start, now: start, last: start, isRange: false, moves: event.shiftKey };
  }

  dragTo(x) {
    const { drag, plot } = this;
    drag.now = Math.min(Math.max(x, plot.left), plot.left + plot.width);
    if (drag.moves) {
      this.pan((drag.last - drag.now) / plot.width);
      drag.last = drag.now;
    } else if (Math.abs(drag.now - drag.start) > 4) drag.isRange = true;
    this.invalidate();
  }

  cancel() {
    this.drag = null;
    this.invalidate();
  }

  release(event) {
    const { drag } = this;
    this.cancel();
    if (!drag) return;
    if (drag.isRange) this.zoom(...[this.valueAt(drag.start), this.valueAt(drag.now)].sort((one, two) => one - two));
    else if (!drag.moves) this.pick(event.offsetX, event.offsetY);
  }

  pick(x, y) {
    const block = this.blockAt(x, y);
    this.page.setMoment(this.eventAt(x));
    if (block >= 0) this.page.select(block);
  }

  wheel(event) {
    if (!this.model?.count || event.ctrlKey) return;
    // Without a key the wheel moves the document, as everywhere; sideways it moves the chart.
    if (!event.altKey && !event.shiftKey && Math.abs(event.deltaX) <= Math.abs(event.deltaY)) return;
    event.preventDefault();
    if (event.altKey) this.zoomAround(this.valueAt(event.offsetX), event.deltaY > 0 ? 1.25 : 0.8);
    else this.pan((event.deltaX || event.deltaY) / 1000);
  }
}
