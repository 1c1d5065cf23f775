// Owns: the chart of usage: stacked by group or block by block, zoomed and moved, one column of events per pixel.
//
// Every pixel looks at the events that fall on it. What was out at their lowest point is drawn solid, what came and went
// on top of it up to their highest point is drawn lighter: no peak is lost, however far it is zoomed out.
// Must not know: the other views; it tells the page what was picked.

const EDGE = { left: 68, right: 10, top: 20, bottom: 24 };

class UsageView extends CanvasView {
  constructor(canvas, page) {
    super(canvas);
    this.page = page;
    this.axis = "time";
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

  get whole() {
    const { model } = this;
    if (this.axis === "events") return [0, Math.max(model.count, 1)];
    return [model.start, Math.max(model.end, model.start + 1)];
  }

  get plot() {
    const { left, right, top, bottom } = EDGE;
    return { left, top, width: Math.max(this.width - left - right, 1), height: Math.max(this.height - top - bottom, 1) };
  }

  reset() {
    [this.from, this.to] = this.whole;
    this.page.rangeChanged();
  }

  /** Shows a range of the axis, kept inside the whole and wider than nothing. */
  zoom(from, to) {
    const [low, high] = this.whole;
    const least = this.axis === "events" ? Math.min(8, high - low) : Math.min(20, high - low);
    const span = Math.min(Math.max(to - from, least), high - low);
    this.from = Math.min(Math.max(from, low), high - span);
    this.to = this.from + span;
    this.page.rangeChanged();
  }

  zoomAround(at, factor) {
    this.zoom(at - (at - this.from) * factor, at + (this.to - at) * factor);
  }

  pan(part) {
    const by = (this.to - this.from) * part;
    this.zoom(this.from + by, this.to + by);
  }

  setAxis(axis) {
    if (axis === this.axis) return;
    const { model } = this;
    const [from, to] = [this.from, this.to];
    this.axis = axis;
    if (axis === "events") this.zoom(model.eventAfter(from), model.eventAfter(to) + 1);
    else this.zoom(model.timeAt(Math.floor(from)), model.timeAt(Math.min(Math.ceil(to), model.count) - 1));
  }

  /** The times that are shown, on either axis. */
  get times() {
    const { model } = this;
    if (this.axis === "time") return [this.from, this.to];
    return [model.timeAt(Math.floor(this.from)), model.timeAt(Math.min(Math.ceil(this.to), model.count) - 1)];
  }

  xOfEvent(event) {
    return this.xOf(this.axis === "events" ? event : this.model.timeAt(Math.min(event, this.model.count - 1)));
  }

  xOf(value) {
    return this.plot.left + ((value - this.from) / (this.to - this.from)) * this.plot.width;
  }

  valueAt(x) {
    return this.from + ((x - this.plot.left) / this.plot.width) * (this.to - this.from);
  }

  /** The first event on or behind a value of the axis. */
  eventAfter(value) {
    if (this.axis === "events") return Math.min(Math.max(Math.ceil(value), 0), this.model.count);
    return this.model.eventAfter(value);
  }

  /** The event whose state is shown at x: the last one at or before it. */
  eventAt(x) {
    const value = this.valueAt(x);
    if (this.axis === "events") return Math.min(Math.max(Math.floor(value), 0), this.model.count - 1);
    return this.model.eventAfter(Math.floor(value) + 1) - 1;
  }

  /** For every column of real pixels: the events after which the most and the least was out. */
  columnsOf(summary, width) {
    const high = new Int32Array(width);
    const low = new Int32Array(width);
    const step = (this.to - this.from) / width;
    let first = this.eventAfter(this.from);
    for (let column = 0; column < width; column += 1) {
      const next = column === width - 1 ? this.eventAfter(this.to + (this.axis === "time" ? 1e-3 : 0))
        : this.eventAfter(this.from + step * (column + 1));
      high[column] = low[column] = first - 1;
      if (next > first) this.widen(summary, column, first, next, high, low);
      first = Math.max(first, next);
    }
    return { high, low };
  }

  widen(summary, column, first, next, high, low) {
    const [most, least] = summary.extremes(first, next);
    const { values } = summary;
    const before = first > 0 ? values[first - 1] : summary === this.model.summary ? this.model.before : 0;
    high[column] = values[most] >= before ? most : first - 1;
    low[column] = values[least] <= before ? least : first - 1;
  }

  draw(context) {
    const { model } = this;
    if (!model || model.count === 0) {
      this.say("No events in this trace.");
      return;
    }
    this.drawPicture();
    context.drawImage(this.picture, 0, 0, this.width, this.height);
    this.drawMarks(context);
  }

  /** The picture below the marks is kept: it changes with the range and the groups, not with the moment. */
  drawPicture() {
    const { page, plot, model } = this;
    const key = [this.canvas.width, this.canvas.height, this.from, this.to, this.axis, page.look].join();
    if (key === this.pictureKey) return;
    this.pictureKey = key;
    this.picture = new OffscreenCanvas(this.canvas.width, this.canvas.height);
    const context = this.picture.getContext("2d");
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    const width = Math.round(plot.width * this.ratio);
    const columns = this.columnsOf(model.summary, width);
    const lines = model.lines.filter((line) => page.shows(line.name)).map((line) => ({ ...line, ...this.columnsOf(line.summary, width) }));
    this.top = this.topOf(columns, lines);
    this.drawGrid(context);
    if (page.selected >= 0) this.drawSpan(context, page.selected);
    const sheet = new Sheet(width, Math.round(plot.height * this.ratio));
    if (page.grouping.by === "block") this.bands = drawBlockBands(this, sheet, columns);
    else this.drawGroups(sheet, columns);
    sheet.layOn(context, plot.left, plot.top, plot.width, plot.height);
    for (const line of lines) this.drawLine(context, line.high, line.values, theme.colors.ink, line.isCounter ? [1.5, 3] : [5, 4], 1.2);
    const { found } = page;
    if (found) this.drawLine(context, this.columnsOf(found.summary, width).high, found.total, theme.colors.accent, [], 2);
    this.drawAxis(context);
  }

  topOf({ high }, lines) {
    let top = 0;
    for (const event of high) top = Math.max(top, this.model.totalAt(event));
    for (const line of lines) for (const event of line.high) if (event >= 0) top = Math.max(top, line.values[event]);
    return Math.max(top, 1) * 1.06;
  }

  yOf(nbytes) {
    return this.plot.top + this.plot.height * (1 - nbytes / this.top);
  }

  drawGrid(context) {
    const { plot } = this;
    context.font = theme.smallFont;
    context.textAlign = "right";
    context.lineWidth = 1;
    for (const tick of binaryTicks(this.top, Math.max(2, plot.height / 44))) {
      const y = Math.round(this.yOf(tick)) + 0.5;
      context.strokeStyle = theme.colors.line;
      context.beginPath();
      context.moveTo(plot.left, y);
      context.lineTo(plot.left + plot.width, y);
      context.stroke();
      context.fillStyle = theme.colors.soft;
      context.fillText(formatBytes(tick), plot.left - 8, y + 4);
    }
    context.textAlign = "left";
  }

  /** The lighter whole first, and the solid part over it. */
  drawGroups(sheet, { high, low }) {
    const { grouping } = this.page;
    const values = new Float64Array(grouping.size);
    for (const [events, alpha] of [[high, 115], [low, 255]]) {
      const colors = Array.from(values, (_, group) =>
        packColor(parseColor(theme.group(grouping, group)), 1, this.page.isDimmed(group) ? alpha / 4 : alpha));
      for (let column = 0; column < events.length; column += 1) {
        if (column === 0 || events[column] !== events[column - 1]) grouping.at(events[column], values);
        this.drawColumn(sheet, column, values, colors);
      }
    }
  }

  drawColumn(sheet, column, values, colors) {
    let sum = 0;
    let bottom = sheet.height;
    for (let group = 0; group < values.length; group += 1) {
      sum += values[group];
      const top = Math.min(Math.max(sheet.height - Math.round((sum * sheet.height) / this.top), 0), bottom);
      sheet.fill(column, top, bottom, colors[group]);
      bottom = top;
    }
  }

  drawLine(context, events, values, color, dashes, lineWidth) {
    const { left } = this.plot;
    context.strokeStyle = color;
    context.lineWidth = lineWidth;
    context.setLineDash(dashes);
    context.beginPath();
    for (let column = 0; column < events.length; column += 1) {
      const y = this.yOf(events[column] < 0 ? 0 : values[events[column]]);
      if (column === 0) context.moveTo(left, y);
      else context.lineTo(left + column / this.ratio, y);
    }
    context.stroke();
    context.setLineDash([]);
  }

  /** The moment, the peak, failures, and the range that is being drawn. */
  drawMarks(context) {
    const { plot, page } = this;
    context.save();
    context.beginPath();
    context.rect(plot.left - 6, 0, plot.width + 12, this.height);
    context.clip();
    this.drawFailures(context);
    this.drawPeak(context);
    this.drawCursor(context, this.xOfEvent(page.moment), theme.colors.accent, 1.5);
    if (this.hovered !== null) this.drawCursor(context, this.hovered, theme.colors.soft, 1);
    if (this.drag?.isRange) {
      context.fillStyle = theme.colors.accent;
      context.globalAlpha = 0.18;
      context.fillRect(this.drag.start, plot.top, this.drag.now - this.drag.start, plot.height);
    }
    context.restore();
  }

  drawCursor(context, x, color, lineWidth) {
    context.strokeStyle = color;
    context.lineWidth = lineWidth;
    context.beginPath();
    context.moveTo(x, this.plot.top - 4);
    context.lineTo(x, this.plot.top + this.plot.height);
    context.stroke();
  }

  drawSpan(context, block) {
    const { plot, model } = this;
    const left = this.xOfEvent(Math.max(model.blocks.start[block], 0));
    const right = model.blocks.end[block] >= model.count ? plot.left + plot.width : this.xOfEvent(model.blocks.end[block]);
    context.save();
    context.beginPath();
    context.rect(plot.left, 0, plot.width, this.height);
    context.clip();
    context.fillStyle = theme.colors.accent;
    context.globalAlpha = 0.08;
    context.fillRect(left, plot.top, Math.max(right - left, 1), plot.height);
    context.globalAlpha = 1;
    context.fillRect(left, plot.top - 4, Math.max(right - left, 2), 4);
    context.restore();
  }

  drawPeak(context) {
    const { peak } = this.model;
    const x = this.xOfEvent(peak.event);
    if (peak.event < 0 || x < this.plot.left || x > this.plot.left + this.plot.width) return;
    const y = this.yOf(peak.nbytes);
    const text = `peak ${formatBytes(peak.nbytes)}`;
    const room = context.measureText(text).width + 8;
    context.fillStyle = theme.colors.ink;
    context.beginPath();
    context.arc(x, y, 3, 0, 7);
    context.fill();
    const left = x + room > this.plot.left + this.plot.width ? x - room : x + 6;
    context.fillStyle = theme.colors.panel;
    context.globalAlpha = 0.8;
    context.fillRect(left - 2, Math.max(y - 17, 0), room - 3, 14);
    context.globalAlpha = 1;
    context.fillStyle = theme.colors.ink;
    context.fillText(text, left, Math.max(y - 6, 11));
  }

  drawFailures(context) {
    const { kind } = this.model.events;
    if (!this.model.failures) return;
    context.fillStyle = theme.colors.alarm;
    let last = -9;
    const end = this.eventAfter(this.to);
    for (let event = this.eventAfter(this.from); event < end; event += 1) {
      if (kind[event] !== FAIL) continue;
      const x = this.xOfEvent(event);
      if (x - last < 3) continue;
      last = x;
      context.beginPath();
      context.moveTo(x - 5, 2);
      context.lineTo(x + 5, 2);
      context.lineTo(x, 12);
      context.fill();
    }
  }

  drawAxis(context) {
    const { plot, model } = this;
    const y = plot.top + plot.height;
    context.strokeStyle = theme.colors.faint;
    context.fillStyle = theme.colors.soft;
    context.lineWidth = 1;
    context.textAlign = "center";
    const ticks = decimalTicks(this.from, this.to, Math.max(2, plot.width / 110));
    for (const tick of ticks) {
      const x = this.xOf(tick);
      context.beginPath();
      context.moveTo(Math.round(x) + 0.5, y);
      context.lineTo(Math.round(x) + 0.5, y + 4);
      context.stroke();
      const text = this.axis === "events" ? formatCount(tick) : formatTick(tick, model.unit, this.to, ticks[1] - ticks[0]);
      const half = context.measureText(text).width / 2;
      context.fillText(text, Math.min(x, plot.left + plot.width - half), y + 17);
    }
    context.textAlign = "left";
    context.fillText(this.axis === "events" ? "event" : model.unit === "step" ? "step" : "time", 8, y + 17);
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
    const lines = [
      `${formatMoment(model.timeAt(at), model.unit, this.times[1] - this.times[0])} · event ${formatCount(at + 1)}`,
      `${formatBytes(model.totalAt(at))} in use${model.held ? ` · ${formatBytes(at < 0 ? 0 : model.held[at])} held` : ""}`,
    ];
    const block = this.blockAt(x, y);
    if (block >= 0) lines.push(page.blockTitle(block));
    else {
      const group = this.groupAt(at, y);
      if (group >= 0) lines.push(`${page.grouping.names[group]}: ${formatBytes(page.grouping.at(at)[group])}`);
    }
    return lines;
  }

  groupAt(event, y) {
    const { grouping } = this.page;
    if (grouping.by === "block") return -1;
    let sum = 0;
    return grouping.at(event).findIndex((nbytes) => (sum += nbytes) > 0 && this.yOf(sum) <= y && y <= this.yOf(sum - nbytes));
  }

  /** The block under a point, when blocks are drawn one by one; otherwise -1. */
  blockAt(x, y) {
    if (this.page.grouping.by !== "block" || !this.bands) return -1;
    return this.bands.at(Math.floor((x - this.plot.left) * this.ratio), Math.floor((y - this.plot.top) * this.ratio));
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
    this.drag = { start: event.offsetX, now: event.offsetX, last: event.offsetX, isRange: false, moves: event.shiftKey };
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
