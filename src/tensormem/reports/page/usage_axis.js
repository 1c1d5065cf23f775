// Owns: what of a trace a chart shows: a range of times or of events, moved and zoomed; and which events fall on which
// pixel. Must not know: what is drawn there.

const EDGE = { left: 68, right: 10, top: 20, bottom: 24 };

class AxisView extends CanvasView {
  constructor(canvas, page) {
    super(canvas);
    this.page = page;
    this.axis = "time";
  }

  get whole() {
    const { model } = this;
    if (this.axis === "events") return [0, Math.max(model.count, 1)];
    return [model.start, Math.max(model.end, model.start + 1)];
  }

  get plot() {
    const { left, right, top, bottom } = EDGE;
    const [width, height] = [this.width - left - right, this.height - top - bottom];
    return { left, top, width: Math.max(width, 1), height: Math.max(height, 1) };
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

  /** The first event of every column of real pixels, and the one behind the last. */
  edgesOf(width) {
    const edges = new Int32Array(width + 1);
    const step = (this.to - this.from) / width;
    edges[0] = this.eventAfter(this.from);
    for (let column = 1; column < width; column += 1) {
      edges[column] = Math.max(this.eventAfter(this.from + step * column), edges[column - 1]);
    }
    const last = this.eventAfter(this.to + (this.axis === "time" ? 1e-3 : 0));
    edges[width] = Math.max(last, edges[width - 1]);
    return edges;
  }

  /** For every column between two edges: the events after which the most and the least was out. */
  columnsOf(summary, edges) {
    const width = edges.length - 1;
    const high = new Int32Array(width);
    const low = new Int32Array(width);
    for (let column = 0; column < width; column += 1) {
      const [first, next] = [edges[column], edges[column + 1]];
      high[column] = low[column] = first - 1;
      if (next > first) this.widen(summary, column, first, next, high, low);
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
}
