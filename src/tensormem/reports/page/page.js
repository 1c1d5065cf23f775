// Owns: the state of the page (the moment, the selected block, what is marked, how usage is stacked) and who is told
// when it changes. Must not know: how a view draws, or what was pressed.

class Page {
  constructor() {
    this.hidden = new Set();
    this.loads = 0;
    this.usage = new UsageView(byId("usage"), this);
    this.overview = new OverviewView(byId("overview"), this);
    this.map = new AddressMapView(byId("addresses"), this);
    this.flame = new FlameView(byId("flame"), this);
    this.tables = new TablesView(byId("blocks"), this);
    this.isServed = byId("data") === null;
    this.controls = new Controls(this);
  }

  async load(range) {
    const model = await Model.build(await readData(range));
    this.groupings = new Map();
    this.loads += 1;
    this.model = model;
    this.hidden = new Set(model.lines.filter((line) => line.isCounter).map((line) => line.name));
    this.moment = model.peak.event;
    this.selected = -1;
    this.found = null;
    this.alone = -1;
    this.by ??= this.bestGrouping();
    await pause();
    this.chooseColors();
    await pause();
    this.map.open(model);
    await pause();
    this.usage.open(model);
    this.flame.open(model);
    this.tables.open(model);
    this.describe();
    this.controls.draw();
    this.refresh();
  }

  /** By tag where there are tags to tell apart, otherwise by whatever has more than one. */
  bestGrouping() {
    const names = this.model.head.format === "lifetimes" ? ["block"] : ["tag", "resource", "space"];
    return names.find((by) => this.groupingBy(by).size > 1) ?? "block";
  }

  groupingBy(by) {
    if (!this.groupings.has(by)) {
      const made = by === "block" ? { by, size: 0, names: [], merged: 0 } : new Grouping(this.model, by);
      this.groupings.set(by, made);
    }
    return this.groupings.get(by);
  }

  describe() {
    const { head } = this.model;
    const name = head.source === "-" ? "standard input" : head.source.split("/").pop();
    byId("source").textContent = name;
    byId("source").title = head.source;
    document.title = `${name} - tensormem`;
    const formats = { tmt: "recording", torch: "PyTorch snapshot", rmm: "RMM log", lifetimes: "lifetimes" };
    byId("about").textContent = `${formats[head.format] ?? head.format}${formatDay(head.wall_ns)}`;
    drawTiles(byId("tiles"), this);
    this.notice();
  }

  notice() {
    const { head, isWindow } = this.model;
    const says = [];
    if (isWindow) {
      const { unit, start, end } = this.model;
      const whole = head.duration_ns;
      const [from, to] = [start, end].map((time) => formatMoment(time, unit, whole));
      const range = `${from} to ${to} of ${formatSpan(whole, unit)}`;
      const advice = this.isServed ? "; draw over it for another window." : ".";
      says.push(`This shows ${head.window[2]}: ${range}. The strip below the chart is the whole trace${advice}`);
      says.push(this.saysUnknown());
    }
    if (!head.complete) says.push("The recording was cut off: its process was killed.");
    if (head.dropped) says.push(`${formatCount(head.dropped)} events were lost while it was recorded.`);
    if (!this.model.count) says.push(isWindow ? "No event falls into it." : "The trace is empty.");
    this.say(says.filter(Boolean).join(" "));
  }

  /** What of the usage is not known block by block, because it began too long before the window. */
  saysUnknown() {
    const { nbytes, count } = this.model.unknown;
    if (!nbytes) return "";
    return `${formatBytes(nbytes)} in ${plural(count, "block")} from long before it are known by their resource alone.`;
  }

  say(text, isBad = false) {
    const notice = byId("notice");
    notice.textContent = text;
    notice.hidden = !text;
    notice.classList.toggle("bad", isBad);
  }

  /** What a block is called in one word, in the map, in a line, and in several. */
  blockLabel(block) {
    const { model } = this;
    const tag = model.events.tag[model.blocks.event[block]];
    return tag ? model.tagName(tag) : model.resourceName(model.events.resource[model.blocks.event[block]]);
  }

  mapLabel(block) {
    const isTagged = this.model.events.tag[this.model.blocks.event[block]] > 0;
    return isTagged ? this.blockLabel(block) : formatBytes(this.model.bytesOf(block));
  }

  blockTitle(block) {
    return `${this.blockLabel(block)} · ${formatBytes(this.model.bytesOf(block))}`;
  }

  blockLines(block) {
    const { model } = this;
    const event = model.blocks.event[block];
    const span = formatSpan(model.endOf(block) - model.startOf(block), model.unit);
    const lived = model.blocks.end[block] >= model.count ? "never given back" : `lived ${span}`;
    const where = model.events.address[event] ? `at ${formatAddress(model.events.address[event])} · ` : "";
    return [this.blockTitle(block), `${where}${lived}`, model.ownerName(event)];
  }

  /** What colours mean: the groups of the chart, or those that tell its blocks apart. */
  chooseColors() {
    this.grouping = this.colorGrouping = this.groupingBy(this.by);
    if (this.by !== "block") return;
    const tags = this.groupingBy("tag");
    this.colorGrouping = tags.tellsApart ? tags : this.groupingBy("size");
  }

  colorOf(block) {
    return theme.group(this.colorGrouping, this.colorGrouping.groupOf(block));
  }

  colorOfTag(...names) {
    const tags = this.groupingBy("tag");
    const place = names.map((name) => tags.names.indexOf(name)).find((found) => found >= 0);
    return place === undefined ? theme.groups[MOST_GROUPS - 1] : theme.group(tags, place);
  }

  /** Changes whenever the chart has to be drawn anew although its range is the same. */
  get look() {
    const { theme: name } = document.documentElement.dataset;
    return [this.loads, this.by, this.alone, this.selected, this.found?.number ?? 0, [...this.hidden], name].join();
  }

  isDimmed(group) {
    return this.alone >= 0 && this.alone !== group;
  }

  isDimmedBlock(block) {
    if (this.found && !this.found.mask[block]) return true;
    return this.alone >= 0 && this.colorGrouping.groupOf(block) !== this.alone;
  }

  shows(what) {
    return !this.hidden.has(what);
  }

  toggle(what) {
    if (!this.hidden.delete(what)) this.hidden.add(what);
    this.refresh();
  }

  solo(group) {
    this.alone = this.alone === group ? -1 : group;
    this.refresh();
  }

  setBy(by) {
    this.by = by;
    this.alone = -1;
    this.chooseColors();
    this.tables.refresh();
    this.controls.draw();
    this.refresh();
  }

  setMoment(event) {
    if (!this.model?.count) return;
    this.moment = Math.min(Math.max(event, 0), this.model.count - 1);
    if (this.flame.of === "moment") this.flame.rebuild();
    if (this.tables.which === "now") this.tables.refresh();
    this.usage.invalidate();
    this.map.invalidate();
    drawMoment(byId("moment"), this);
    drawLegend(byId("legend"), this, this.moment);
  }

  /** To an event, and the chart with it when it is out of sight. */
  goTo(event) {
    this.setMoment(event);
    const { usage } = this;
    const at = usage.axis === "events" ? this.moment : this.model.timeAt(this.moment);
    const half = (usage.to - usage.from) / 2;
    if (at < usage.from || at > usage.to) usage.zoom(at - half, at + half);
  }

  select(block) {
    this.selected = block;
    this.tables.markSelected();
    this.refresh();
  }

  /** The block before or behind the selected one, by address, among those of the moment. */
  selectBeside(step) {
    const blocks = this.map.state?.regions.flatMap((region) => [...region.blocks]) ?? [];
    if (!blocks.length) return;
    const at = blocks.indexOf(this.selected);
    this.select(blocks[at < 0 ? (step > 0 ? 0 : blocks.length - 1) : (at + step + blocks.length) % blocks.length]);
  }

  search(text) {
    const predicate = predicateOf(this.model, text);
    this.mark(text.trim(), predicate);
    this.flame.focus = this.flame.root;
  }

  /** Marks the blocks that a predicate accepts, in every view. */
  mark(text, predicate) {
    this.found = predicate ? new Found(this.model, text, predicate) : null;
    const { count, peak } = this.found ?? {};
    byId("found").textContent = this.found ? `${plural(count, "block")}, at most ${formatBytes(peak)}` : "";
    this.tables.refresh();
    this.refresh();
  }

  clear() {
    byId("search").value = "";
    this.alone = -1;
    this.search("");
    this.select(-1);
  }

  showTable(which) {
    this.tables.show(which);
    this.controls.draw();
    byId("blocks").closest(".panel").scrollIntoView({ block: "nearest" });
  }

  themeChanged() {
    if (!this.model) return;
    this.tables.refresh();
    this.refresh();
  }

  hoverEvent(event) {
    drawLegend(byId("legend"), this, event ?? this.moment);
  }

  rangeChanged() {
    this.usage.invalidate();
    this.overview.invalidate();
  }

  /** A range of times of the whole trace: shown if it is loaded, asked for if not. */
  async showTimes(from, to) {
    const { model } = this;
    const isLoaded = from >= model.start && to <= model.end + 1;
    if (isLoaded || !this.isServed) {
      this.usage.setAxis("time");
      this.usage.zoom(from, to);
      return;
    }
    this.say("Loading…");
    try {
      await this.load([from, Math.max(to, from + 1)]);
    } catch (error) {
      this.say(error.message, true);
    }
  }

  stateChanged(state, isKnown) {
    const more = isKnown
      ? `; holes ${formatBytes(state.holes)} · a row is ${formatBytes(this.map.rowBytes ?? 0)}`
      : " · this trace has no addresses: oldest first, end to end";
    const text = `${plural(state.blocks, "block")}, ${formatBytes(state.nbytes)}${more}`;
    byId("state").textContent = text;
    byId("state").title = text;
  }

  refresh() {
    for (const view of [this.usage, this.overview, this.map, this.flame]) view.invalidate();
    drawMoment(byId("moment"), this);
    drawSelection(byId("selection"), this);
    drawLegend(byId("legend"), this, this.moment);
  }

  zoomMoment(factor) {
    const { usage } = this;
    const at = usage.axis === "events" ? this.moment : this.model.timeAt(this.moment);
    usage.zoomAround(Math.min(Math.max(at, usage.from), usage.to), factor);
  }

}
