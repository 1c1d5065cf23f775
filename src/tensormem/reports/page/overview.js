// Owns: the strip below the chart: the whole range small, and what of it the chart shows; drawn over to choose another
// range. Of a trace that is too long for one page it shows the whole trace, and asks for the window that is drawn.
// Must not know: groups and blocks.

class OverviewView extends CanvasView {
  constructor(canvas, page) {
    super(canvas);
    this.page = page;
    this.drag = null;
    canvas.addEventListener("pointerdown", (event) => this.press(event));
    canvas.addEventListener("pointerup", () => this.release());
    canvas.addEventListener("pointercancel", () => (this.drag = null));
  }

  /** The part of the trace that is loaded, as fractions of the strip; null when that is all of it. */
  get loaded() {
    const { model } = this.page;
    if (!model.head.overview) return null;
    const whole = Math.max(model.head.duration_ns, 1);
    return [model.start / whole, (model.end + 1) / whole];
  }

  get room() {
    return Math.max(this.width - EDGE.left - EDGE.right, 1);
  }

  fractionAt(x) {
    return Math.min(Math.max((x - EDGE.left) / this.room, 0), 1);
  }

  xOf(fraction) {
    return EDGE.left + fraction * this.room;
  }

  draw(context) {
    const { model, usage } = this.page;
    if (!model?.count) return;
    const { points, top } = this.pointsOf(model, usage);
    context.fillStyle = theme.colors.faint;
    context.globalAlpha = 0.55;
    this.fill(context, points, top, 1);
    context.globalAlpha = 1;
    this.fill(context, points, top, 2);
    this.drawWindow(context);
  }

  /** The area below the most (1) or the least (2) of each point. */
  fill(context, points, top, which) {
    const base = this.height - 2;
    const yOf = (nbytes) => base - ((base - 4) * nbytes) / top;
    context.beginPath();
    context.moveTo(this.xOf(0), base);
    for (const point of points) context.lineTo(this.xOf(point[0]), yOf(point[which]));
    context.lineTo(this.xOf(1), yOf(points.at(-1)?.[which] ?? 0));
    context.lineTo(this.xOf(1), base);
    context.fill();
  }

  /** What the strip is drawn from: the same, whatever the chart shows of it. */
  pointsOf(model, usage) {
    const key = [this.page.loads, this.room, usage.axis].join();
    if (key !== this.known?.key) {
      const points = model.head.overview ? this.pointsOfTrace(model) : this.pointsOfModel(model, usage);
      this.known = { key, points, top: Math.max(...points.map(([, nbytes]) => nbytes), 1) };
    }
    return this.known;
  }

  pointsOfTrace({ head }) {
    const whole = Math.max(head.duration_ns, 1);
    const [times, highest, lowest] = head.overview;
    return times.map((time, place) => [time / whole, highest[place], lowest[place]]);
  }

  pointsOfModel(model, usage) {
    const width = Math.round(this.room);
    const [from, to] = usage.whole;
    const points = [];
    let first = 0;
    for (let column = 0; column < width; column += 1) {
      const next = column === width - 1 ? model.count : usage.eventAfter(from + ((to - from) * (column + 1)) / width);
      const [high, low] = next > first ? model.summary.extremes(first, next) : [first - 1, first - 1];
      const before = model.totalAt(first - 1);
      points.push([column / width, Math.max(model.totalAt(high), before), Math.min(model.totalAt(low), before)]);
      first = Math.max(first, next);
    }
    return points;
  }

  /** What the chart shows, as fractions of the strip. */
  get shown() {
    const { usage, model } = this.page;
    const [low, high] = usage.whole;
    if (!this.loaded) return [(usage.from - low) / (high - low), (usage.to - low) / (high - low)];
    const whole = Math.max(model.head.duration_ns, 1);
    return usage.times.map((time) => Math.min(time / whole, 1));
  }

  drawWindow(context) {
    if (this.loaded) {
      context.strokeStyle = theme.colors.accent;
      const [left, right] = this.loaded.map((fraction) => this.xOf(fraction));
      context.strokeRect(left + 0.5, 1.5, Math.max(right - left, 2), this.height - 3);
    }
    const [from, to] = this.drag ? [this.drag.from, this.drag.to].sort((one, two) => one - two) : this.shown;
    context.fillStyle = theme.colors.panel;
    context.globalAlpha = 0.72;
    context.fillRect(EDGE.left, 0, Math.max(this.xOf(from) - EDGE.left, 0), this.height);
    context.fillRect(this.xOf(to), 0, Math.max(this.xOf(1) - this.xOf(to), 0), this.height);
    context.globalAlpha = 1;
    context.fillStyle = theme.colors.accent;
    for (const fraction of [from, to]) context.fillRect(this.xOf(fraction) - 1, 0, 2, this.height);
    context.fillRect(this.xOf(from), this.height - 2, (to - from) * this.room, 2);
  }

  press(event) {
    if (event.button !== 0 || !this.page.model?.count) return;
    this.canvas.setPointerCapture(event.pointerId);
    const at = this.fractionAt(event.offsetX);
    const [from, to] = this.shown;
    const near = 6 / this.room;
    if (Math.abs(at - from) < near) this.drag = { from: to, to: at, kind: "edge" };
    else if (Math.abs(at - to) < near) this.drag = { from, to: at, kind: "edge" };
    else if (at > from && at < to && to - from < 0.98) this.drag = { from, to, at, kind: "move" };
    else this.drag = { from: at, to: at, kind: "range" };
  }

  hover(x) {
    const { drag } = this;
    if (!drag) return null;
    const at = this.fractionAt(x);
    if (drag.kind === "move") {
      const by = Math.min(Math.max(at - drag.at, -drag.from), 1 - drag.to);
      [drag.from, drag.to, drag.at] = [drag.from + by, drag.to + by, at];
    } else drag.to = at;
    if (!this.loaded) this.apply();
    this.invalidate();
    return null;
  }

  release() {
    if (this.drag && this.drag.from !== this.drag.to) this.apply();
    this.drag = null;
    this.invalidate();
  }

  apply() {
    const [from, to] = [this.drag.from, this.drag.to].sort((one, two) => one - two);
    if (this.loaded) {
      const whole = this.page.model.head.duration_ns;
      this.page.showTimes(from * whole, to * whole);
    } else {
      const [low, high] = this.page.usage.whole;
      this.page.usage.zoom(low + from * (high - low), low + to * (high - low));
    }
  }
}
