// Owns: the chart of usage as a picture: stacked by group or block by block, lines beside it, axes and marks.
//
// Every pixel looks at the events that fall on it. What was out at their lowest point is drawn solid, and what came and
// went on top of it, up to their highest point, is drawn lighter: no peak is lost, however far it is zoomed out.
// Must not know: the pointer.

class UsagePicture extends AxisView {
  draw(context) {
    const { model } = this;
    if (!model || model.count === 0) {
      this.say(`No events in this ${model?.isWindow ? "window" : "trace"}.`);
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
    this.pictures = (this.pictures ?? 0) + 1;
    const context = this.blankPicture();
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    const width = Math.round(plot.width * this.ratio);
    const edges = this.edgesOf(width);
    const columns = this.columnsOf(model.summary, edges);
    const shown = model.lines.filter((line) => page.shows(line.name));
    const lines = shown.map((line) => ({ ...line, ...this.columnsOf(line.summary, edges) }));
    this.top = this.topOf(columns, lines);
    this.drawGrid(context);
    if (page.selected >= 0) this.drawSpan(context, page.selected);
    const sheet = (this.sheet = Sheet.blank(this.sheet, width, Math.round(plot.height * this.ratio)));
    this.bands = page.grouping.by === "block" ? new BlockBands(this, sheet, columns) : null;
    if (!this.bands) this.drawGroups(sheet, columns);
    sheet.layOn(context, plot.left, plot.top, plot.width, plot.height);
    for (const { high, values, isCounter } of lines) {
      this.drawLine(context, high, values, theme.colors.ink, isCounter ? [1.5, 3] : [5, 4], 1.2);
    }
    if (page.found) {
      const { high } = this.columnsOf(page.found.summary, edges);
      this.drawLine(context, high, page.found.total, theme.colors.accent, [], 2);
    }
    this.drawAxis(context);
  }

  blankPicture() {
    const { width, height } = this.canvas;
    if (this.picture?.width !== width || this.picture.height !== height) {
      this.picture = new OffscreenCanvas(width, height);
      return this.picture.getContext("2d");
    }
    const context = this.picture.getContext("2d");
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, width, height);
    return context;
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
      sheet.fillBox(column, column + 1, top, bottom, colors[group]);
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
    const end = model.blocks.end[block];
    const right = end >= model.count ? plot.left + plot.width : this.xOfEvent(end);
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
    const [first, end] = [this.eventAfter(this.from), this.eventAfter(this.to)];
    context.fillStyle = theme.colors.alarm;
    let last = -9;
    for (const event of this.model.failed) {
      if (event < first || event >= end) continue;
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
      const isTime = this.axis === "time";
      const text = isTime ? formatTick(tick, model.unit, this.to, ticks[1] - ticks[0]) : formatCount(tick);
      const half = context.measureText(text).width / 2;
      context.fillText(text, Math.min(x, plot.left + plot.width - half), y + 17);
    }
    context.textAlign = "left";
    context.fillText(this.axis === "events" ? "event" : model.unit === "step" ? "step" : "time", 8, y + 17);
  }
}
