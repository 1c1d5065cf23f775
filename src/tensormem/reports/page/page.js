// Owns: the state of the page (the moment, the selected block, what is marked, how usage is stacked) and who is told
// when it changes; keys and buttons; and `window.tensormem`, through which a program can ask what the page shows.
// Must not know: how a view draws.

const STACKED_BY = { space: "Space", tag: "Tag", resource: "Resource", block: "Block" };
const AXES = { time: "Time", events: "Events" };
const FLAME_BY = { tag: "Owner", stack: "Calls" };
const FLAME_OF = { peak: "Peak", moment: "Moment", all: "All", leaked: "Left" };
const KEYS = [
  ["← →", "one event; Shift: 100"], ["Home End", "first and last event"], ["p", "to the peak"],
  ["+ −", "zoom around the moment"], ["a d", "move the chart"], ["0", "show everything"],
  ["1 2 3 4", "how it is stacked"], ["s", "select the event's block"], ["[ ]", "select its neighbour"],
  ["/", "search"], ["Esc", "clear search and selection"], ["t", "light or dark"], ["?", "these keys"],
];

function byId(id) {
  return document.getElementById(id);
}

class Page {
  constructor() {
    this.hidden = new Set();
    this.loads = 0;
    this.usage = new UsageView(byId("usage"), this);
    this.overview = new OverviewView(byId("overview"), this);
    this.map = new AddressMapView(byId("addresses"), this);
    this.flame = new FlameView(byId("flame"), this);
    this.tables = new TablesView(byId("blocks"), this);
    this.choices = {};
    this.connect();
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
    this.grouping = this.groupingBy(this.by);
    await pause();
    this.map.open(model);
    await pause();
    this.usage.open(model);
    this.flame.open(model);
    this.tables.open(model);
    this.describe();
    this.drawChoices();
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
    const began = Math.abs(head.wall_ns ?? Infinity) < 8.64e21 ? ` of ${new Date(head.wall_ns / 1e6).toISOString().slice(0, 16).replace("T", " ")} UTC` : "";
    byId("about").textContent = `${formats[head.format] ?? head.format}${began}`;
    drawTiles(byId("tiles"), this);
    this.notice();
  }

  notice() {
    const { head, isWindow } = this.model;
    const says = [];
    if (isWindow) {
      says.push(`This shows ${head.window[2]}: ${formatMoment(this.model.start, this.model.unit, head.duration_ns)} to ` +
        `${formatMoment(this.model.end, this.model.unit, head.duration_ns)} of ${formatSpan(head.duration_ns, this.model.unit)}. The strip below the chart is the whole trace` +
        `${this.isServed ? "; draw over it for another window." : "."}`);
    }
    if (!head.complete) says.push("The recording was cut off: its process was killed.");
    if (head.dropped) says.push(`${formatCount(head.dropped)} events were lost while it was recorded.`);
    if (!this.model.count) says.push("The trace is empty.");
    this.say(says.join(" "));
  }

  get isServed() {
    return location.protocol !== "file:" && byId("data") === null && this.model?.head.overview !== undefined;
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
    const lived = model.blocks.end[block] >= model.count ? "never given back" : `lived ${formatSpan(model.endOf(block) - model.startOf(block), model.unit)}`;
    const where = model.events.address[event] ? `at ${formatAddress(model.events.address[event])}` : "";
    return [this.blockTitle(block), [where, lived].filter(Boolean).join(" · "), `${model.resourceName(model.events.resource[event])} in ${model.spaceName(model.events.resource[event])}`];
  }

  get colorGrouping() {
    if (this.by !== "block") return this.grouping;
    const tags = this.groupingBy("tag");
    return tags.tellsApart ? tags : this.groupingBy("size");
  }

  colorGroup(block) {
    return Math.min(this.colorGrouping.ofBlock[block], this.colorGrouping.size - 1);
  }

  colorOf(block) {
    return theme.group(this.colorGrouping, this.colorGroup(block));
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
    return this.alone >= 0 && this.colorGroup(block) !== this.alone;
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
    this.grouping = this.groupingBy(by);
    this.tables.refresh();
    this.drawChoices();
    this.refresh();
  }

  setMoment(event) {
    if (!this.model?.count) return;
    this.moment = Math.min(Math.max(event, 0), this.model.count - 1);
    if (this.flame.of === "moment") this.flame.rebuild();
    if (this.tables.which === "now") this.tables.refresh();
    this.refresh();
  }

  /** To an event, and the chart with it when it is out of sight. */
  goTo(event) {
    this.setMoment(event);
    const { usage } = this;
    const at = usage.axis === "events" ? this.moment : this.model.timeAt(this.moment);
    if (at < usage.from || at > usage.to) usage.zoom(at - (usage.to - usage.from) / 2, at + (usage.to - usage.from) / 2);
  }

  select(block) {
    this.selected = block;
    this.tables.markSelected();
    this.refresh();
  }

  /** The block before or behind the selected one, by address, among those of the moment. */
  selectBeside(step) {
    const blocks = this.map.state?.regions.flatMap((region) => region.blocks) ?? [];
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
    byId("found").textContent = this.found ? `${plural(this.found.count, "block")}, at most ${formatBytes(this.found.peak)}` : "";
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
    this.drawChoices();
    byId("blocks").closest(".panel").scrollIntoView({ block: "nearest" });
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
    const text = isKnown
      ? `${plural(state.blocks, "block")}, ${formatBytes(state.nbytes)}; holes ${formatBytes(state.holes)} · a row is ${formatBytes(this.map.rowBytes)}`
      : `${plural(state.blocks, "block")}, ${formatBytes(state.nbytes)} · this trace has no addresses: oldest first, end to end`;
    byId("state").textContent = text;
    byId("state").title = text;
  }

  refresh() {
    for (const view of [this.usage, this.overview, this.map, this.flame]) view.invalidate();
    drawMoment(byId("moment"), this);
    drawSelection(byId("selection"), this);
    drawLegend(byId("legend"), this, this.moment);
  }

  /** Buttons of which one is chosen. */
  drawChoice(id, options, chosen, action, disabled = {}) {
    const buttons = Object.entries(options).map(([name, text]) => {
      const made = element("button", "", text);
      made.setAttribute("role", "radio");
      made.setAttribute("aria-checked", String(name === chosen));
      made.disabled = name in disabled;
      if (made.disabled) made.title = disabled[name];
      made.dataset.value = name;
      made.addEventListener("click", () => action(name));
      return made;
    });
    byId(id).replaceChildren(...buttons);
  }

  drawChoices() {
    const noCalls = this.model.stacks.size ? {} : { stack: "The trace has no calls; record with --stacks." };
    const redraw = (action) => (name) => {
      action(name);
      this.drawChoices();
    };
    this.drawChoice("by", STACKED_BY, this.by, (name) => this.setBy(name));
    this.drawChoice("axis", this.model.unit === "step" ? { ...AXES, time: "Steps" } : AXES, this.usage.axis, redraw((name) => this.usage.setAxis(name)));
    this.drawChoice("flame-by", FLAME_BY, this.flame.by, redraw((name) => this.flame.set(name, this.flame.of)), noCalls);
    this.drawChoice("flame-of", FLAME_OF, this.flame.of, redraw((name) => this.flame.set(this.flame.by, name)));
    const tables = Object.fromEntries(Object.entries(TABLES).map(([name, [title]]) => [name, title]));
    this.drawChoice("table", tables, this.tables.which, redraw((name) => this.tables.show(name)));
  }

  setTheme(name) {
    document.documentElement.dataset.theme = name;
    theme.read();
    if (!this.model) return;
    this.tables.refresh();
    this.refresh();
  }

  switchTheme() {
    this.setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
    this.themeIsChosen = true;
  }

  connect() {
    const dark = matchMedia("(prefers-color-scheme: dark)");
    this.setTheme(dark.matches ? "dark" : "light");
    dark.addEventListener("change", () => this.themeIsChosen || this.setTheme(dark.matches ? "dark" : "light"));
    const actions = {
      theme: () => this.switchTheme(), help: () => this.showKeys(), first: () => this.goTo(0), last: () => this.goTo(Infinity),
      back: () => this.goTo(this.moment - 1), next: () => this.goTo(this.moment + 1), "to-peak": () => this.goTo(this.model.peak.event),
      "zoom-in": () => this.zoomMoment(0.5), "zoom-out": () => this.zoomMoment(2), "zoom-all": () => this.usage.reset(),
    };
    for (const [id, action] of Object.entries(actions)) byId(id).addEventListener("click", () => this.model && action());
    byId("search").addEventListener("input", (event) => this.model && this.search(event.target.value));
    document.addEventListener("keydown", (event) => this.key(event));
  }

  zoomMoment(factor) {
    const { usage } = this;
    const at = usage.axis === "events" ? this.moment : this.model.timeAt(this.moment);
    usage.zoomAround(Math.min(Math.max(at, usage.from), usage.to), factor);
  }

  showKeys() {
    const dialog = byId("keys");
    const close = button("Close", () => dialog.close());
    dialog.replaceChildren(keyList(), element("p", "", close));
    dialog.showModal();
  }

  key(event) {
    if (!this.model || event.ctrlKey || event.metaKey || event.altKey || byId("keys").open) return;
    if (event.target === byId("search")) {
      if (event.key === "Escape") {
        this.clear();
        event.target.blur();
      }
      return;
    }
    const step = event.shiftKey ? 100 : 1;
    const actions = {
      ArrowLeft: () => this.goTo(this.moment - step), ArrowRight: () => this.goTo(this.moment + step),
      Home: () => this.goTo(0), End: () => this.goTo(Infinity), p: () => this.goTo(this.model.peak.event),
      "+": () => this.zoomMoment(0.5), "=": () => this.zoomMoment(0.5), "-": () => this.zoomMoment(2), 0: () => this.usage.reset(),
      a: () => this.usage.pan(-0.25), d: () => this.usage.pan(0.25), s: () => this.select(this.model.blockOf[this.moment]),
      "[": () => this.selectBeside(-1), "]": () => this.selectBeside(1),
      1: () => this.setBy("space"), 2: () => this.setBy("tag"), 3: () => this.setBy("resource"), 4: () => this.setBy("block"),
      "/": () => byId("search").focus(), Escape: () => this.clear(), t: () => this.switchTheme(), "?": () => this.showKeys(),
    };
    const action = actions[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  }
}

/** What programs may ask; documented in docs/how-to/look-at-a-trace.md. Blocks and events are numbers from 0. */
function queries(page, ready) {
  const usageAt = (by, event) => {
    const grouping = page.groupingBy(by);
    const values = grouping.at(event);
    return Object.fromEntries(grouping.names.map((name, group) => [name, values[group]]));
  };
  return Object.freeze({
    ready,
    summary: () => ({
      events: page.model.count, peak_bytes: page.model.peak.nbytes, peak_event: page.model.peak.event,
      leaked_bytes: page.model.leaked.nbytes, leaked_blocks: page.model.leaked.count, failures: page.model.failures,
      largest: page.model.largest, from_ns: page.model.start, to_ns: page.model.end,
      held_bytes: page.model.held ? page.model.held.reduce((most, one) => Math.max(most, one), 0) : null,
    }),
    eventAt: (time) => page.model.eventAfter(time + 1) - 1,
    usage: usageAt,
    block: (block) => ({
      nbytes: page.model.bytesOf(block), tag: page.model.tagName(page.model.events.tag[page.model.blocks.event[block]]),
      start_ns: page.model.startOf(block), end_ns: page.model.endOf(block), address: page.model.events.address[page.model.blocks.event[block]],
      start_event: page.model.blocks.start[block], end_event: page.model.blocks.end[block],
    }),
    state: () => ({
      by: page.by, axis: page.usage.axis, from: page.usage.from, to: page.usage.to, moment: page.moment, selected: page.selected,
      found: page.found ? { blocks: page.found.count, peak_bytes: page.found.peak } : null,
      theme: document.documentElement.dataset.theme, is_window: page.model.isWindow,
    }),
    map: () => ({ blocks: page.map.state.blocks, nbytes: page.map.state.nbytes, holes: page.map.state.holes, regions: page.map.state.regions.length }),
    where: (block) => ({ usage: [page.usage.xOfEvent(Math.max(page.model.blocks.start[block], 0)), page.usage.xOfEvent(page.model.blocks.end[block])], map: page.map.boxesOf(block) }),
    heightAt: (event) => page.usage.yOf(page.model.totalAt(event)),
    xOf: (event) => page.usage.xOfEvent(event),
    flame: () => page.flame.boxes.map(({ node, x, y, width }) => ({ path: node.path, nbytes: node.nbytes, x, y, width })),
    table: () => page.tables.rows.slice(),
    frames: () => page.usage.frames,
    goTo: (event) => page.goTo(event),
    select: (block) => page.select(block),
    zoom: (from, to) => page.usage.zoom(from, to),
    stackBy: (by) => page.setBy(by),
  });
}

const page = new Page();
const ready = page.load().then(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))));
ready.catch((error) => page.say(`The data cannot be read: ${error.message}`, true));
window.tensormem = queries(page, ready);
