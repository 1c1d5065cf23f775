// Owns: the flame graph: bytes by space, resource and tag, or by the calls that asked for them; at the moment, at the
// peak, over all, or never given back. Must not know: the other views; it tells the page which blocks were meant.

const LEAST_FLAME_ROW = 20, MOST_FLAME_ROW = 32, FLAME_HEIGHT = 330;

class FlameNode {
  constructor(name, above) {
    this.name = name;
    this.above = above;
    this.nbytes = 0;
    this.count = 0;
    this.children = new Map();
  }

  child(name) {
    let found = this.children.get(name);
    if (!found) this.children.set(name, (found = new FlameNode(name, this)));
    return found;
  }

  get path() {
    return this.above ? [...this.above.path, this.name] : [];
  }

  get depth() {
    return Math.max(0, ...[...this.children.values()].map((child) => child.depth + 1));
  }
}

class FlameView extends CanvasView {
  constructor(canvas, page) {
    super(canvas);
    this.page = page;
    this.by = "tag";
    this.of = "peak";
    this.boxes = [];
    canvas.addEventListener("click", (event) => this.pick(this.boxAt(event.offsetX, event.offsetY)?.node));
    canvas.addEventListener("keydown", (event) => this.key(event));
    canvas.addEventListener("focus", () => this.invalidate());
    canvas.addEventListener("blur", () => {
      readout.hide();
      this.invalidate();
    });
  }

  open(model) {
    this.model = model;
    this.paths = new Map();
    this.rebuild();
  }

  /** The numbers that the path of a block depends on, as one number. */
  keyOf(block) {
    const { resource, tag, stack } = this.model.events;
    const event = this.model.blocks.event[block];
    return this.by === "stack" ? stack[event] : resource[event] * 2 ** 32 + tag[event];
  }

  pathOf(block) {
    const key = this.keyOf(block);
    let path = this.paths.get(key);
    if (!path) this.paths.set(key, (path = this.by === "stack" ? this.callsOf(block) : this.ownersOf(block)));
    return path;
  }

  ownersOf(block) {
    const { model } = this;
    const event = model.blocks.event[block];
    const resource = model.events.resource[event];
    const tag = model.tagName(model.events.tag[event]);
    return [model.spaceName(resource), model.resourceName(resource), ...tag.split("/").filter(Boolean)];
  }

  callsOf(block) {
    const frames = this.model.stack(this.model.events.stack[this.model.blocks.event[block]]);
    if (!frames.length) return ["no calls recorded"];
    return frames.map((frame) => `${frame.name}  ${frame.file.split("/").pop()}:${frame.line}`).reverse();
  }

  counts(block) {
    const { model, page } = this;
    if (model.depthOf(block) !== 0) return false;
    if (this.of === "moment") return model.isLive(block, page.moment);
    if (this.of === "peak") return model.isLive(block, model.peak.event);
    return this.of === "leaked" ? model.blocks.end[block] >= model.count : model.blocks.start[block] >= 0;
  }

  rebuild() {
    this.root = new FlameNode("all", null);
    const sums = new Map();
    for (let block = 0; block < this.model.blocks.count; block += 1) {
      if (!this.counts(block)) continue;
      const key = this.keyOf(block);
      let sum = sums.get(key);
      if (!sum) sums.set(key, (sum = { block, nbytes: 0, count: 0 }));
      sum.nbytes += this.model.bytesOf(block);
      sum.count += 1;
    }
    for (const { block, nbytes, count } of sums.values()) this.grow(this.pathOf(block), nbytes, count);
    if (this.of !== "all") this.growUnknown();
    this.focus = this.current = this.root;
    this.invalidate();
  }

  /** What was out all through a window, and is known by its resource alone. */
  growUnknown() {
    const { model } = this;
    for (const [resource, { nbytes, count }] of model.older) {
      const owner = [model.spaceName(resource), model.resourceName(resource), "before the window, tag unknown"];
      this.grow(this.by === "stack" ? ["before the window, calls unknown"] : owner, nbytes, count);
    }
  }

  grow(path, nbytes, count) {
    let node = this.root;
    for (const name of [null, ...path]) {
      if (name !== null) node = node.child(name);
      node.nbytes += nbytes;
      node.count += count;
    }
  }

  set(by, of) {
    if (by !== this.by) this.paths = new Map();
    [this.by, this.of] = [by, of];
    this.rebuild();
  }

  draw(context) {
    if (!this.model) return;
    const rows = this.focus.path.length + this.focus.depth + 1;
    this.row = Math.min(MOST_FLAME_ROW, Math.max(LEAST_FLAME_ROW, Math.floor(FLAME_HEIGHT / rows)));
    const height = Math.max(rows * this.row + 4, 120);
    if (Math.abs(this.height - height) > 1) {
      this.canvas.style.height = `${height}px`; // it is drawn again when the size has changed
      return;
    }
    this.boxes = [];
    if (!this.root.nbytes) return void this.say(this.emptyText());
    const marked = this.page.selected >= 0 ? this.pathOf(this.page.selected) : null;
    // Those above what was chosen stay, in full width, as the way back.
    let node = this.root;
    for (const name of [null, ...this.focus.path]) {
      if (name !== null) node = node.children.get(name);
      if (node !== this.focus) this.drawBox(context, node, 0, this.width, marked);
    }
    this.drawTree(context, this.focus, 0, this.width, marked);
  }

  emptyText() {
    return { moment: "Nothing is out at this moment.", leaked: "Everything was given back." }[this.of] ?? "No blocks.";
  }

  drawTree(context, node, x, width, marked) {
    this.drawBox(context, node, x, width, marked);
    let left = x;
    const children = [...node.children.values()].sort((one, two) => two.nbytes - one.nbytes);
    const thin = children.findIndex((child) => (child.nbytes / node.nbytes) * width < 1);
    for (const child of thin < 0 ? children : children.slice(0, thin)) {
      const room = (child.nbytes / node.nbytes) * width;
      this.drawTree(context, child, left, room, marked);
      left += room;
    }
    if (thin >= 0) this.drawRest(context, node, children.slice(thin), left, x + width - left);
  }

  /** What is too thin to draw one by one, as one box. */
  drawRest(context, node, rest, x, width) {
    const whole = new FlameNode(plural(rest.length, "smaller one"), node);
    for (const child of rest) {
      whole.nbytes += child.nbytes;
      whole.count += child.count;
    }
    if (width >= 0.5) this.drawBox(context, whole, x, width, null);
  }

  drawBox(context, node, x, width, marked) {
    const { path } = node;
    const y = path.length * this.row + 1;
    const isMarked = marked && path.every((name, place) => marked[place] === name);
    const matches = this.page.found && node.name.toLowerCase().includes(this.page.found.text.toLowerCase());
    this.boxes.push({ node, x, y, width });
    context.fillStyle = this.colorOf(node, path);
    context.fillRect(x, y, Math.max(width - 1, 0.8), this.row - 1);
    const isCurrent = node === this.current && document.activeElement === this.canvas;
    if ((isMarked && path.length) || isCurrent) {
      context.strokeStyle = isCurrent ? theme.colors.ink : theme.colors.accent;
      context.lineWidth = 2;
      context.strokeRect(x + 1, y + 1, Math.max(width - 3, 1), this.row - 3);
    }
    const isPale = path.length < (this.by === "tag" ? 3 : 1);
    context.fillStyle = isPale ? theme.colors.ink : "#ffffff";
    context.font = matches ? `bold ${theme.smallFont}` : theme.smallFont;
    this.label(`${node.name}  ${formatBytes(node.nbytes)}`, x + 5, y + this.row / 2 + 4, width - 10);
  }

  colorOf(node, path) {
    if (path.length === 0) return theme.colors.line;
    if (this.by === "tag") {
      if (path.length < 3) return path.length === 1 ? theme.colors.faint : theme.colors.line;
      if (!this.isReal(node)) return theme.colors.faint;
      return this.page.colorOfTag(path.slice(2).join("/"), path[2]);
    }
    let hash = 0;
    for (const letter of node.name) hash = (hash * 31 + letter.charCodeAt(0)) >>> 0;
    return theme.groups[hash % (MOST_GROUPS - 1)];
  }

  boxAt(x, y) {
    return this.boxes.find((box) => x >= box.x && x < box.x + box.width && y >= box.y && y < box.y + this.row);
  }

  /** Whether a node is a box of its own, and not the one that gathers those too thin to draw. */
  isReal(node) {
    return !node.above || node.above.children.get(node.name) === node;
  }

  /** What is picked fills the width, and its blocks are marked everywhere. */
  pick(node) {
    if (!node || !this.isReal(node)) return;
    this.focus = this.current = node;
    const { path } = node;
    const isBelow = (block) => this.pathOf(block).slice(0, path.length).join("\n") === path.join("\n");
    this.page.mark(path.length ? path[path.length - 1] : "", path.length ? isBelow : null);
    this.invalidate();
  }

  /** Arrows go from box to box, Enter picks. */
  key(event) {
    const node = this.current ?? this.root;
    const inOrder = (one) => [...(one?.children.values() ?? [])].sort((first, second) => second.nbytes - first.nbytes);
    const beside = (step) => {
      const all = inOrder(node.above);
      return all[all.indexOf(node) + step];
    };
    const moves = {
      ArrowUp: () => node.above,
      ArrowDown: () => inOrder(node)[0],
      ArrowLeft: () => beside(-1),
      ArrowRight: () => beside(1),
    };
    if (event.key !== "Enter" && !moves[event.key]) return;
    event.preventDefault();
    event.stopPropagation();
    if (event.key === "Enter") this.pick(node);
    else this.current = moves[event.key]() ?? node;
    this.drawNow();
    const box = this.boxes.find((one) => one.node === this.current);
    const edge = this.canvas.getBoundingClientRect();
    if (box) readout.show(this.linesOf(box.node), edge.left + box.x, edge.top + box.y + this.row - 12);
  }

  hover(x, y) {
    const box = this.model ? this.boxAt(x, y) : null;
    if (!box) return null;
    return this.linesOf(box.node);
  }

  linesOf(node) {
    const part = (100 * node.nbytes) / this.root.nbytes;
    return [node.name, `${formatBytes(node.nbytes)} · ${threeDigits(part)} % · ${plural(node.count, "block")}`];
  }
}
