// Owns: what the events tell: blocks with their beginnings and ends, what was out after every event, what was held of
// the system, peaks and leaks. Must not know: pixels.

const KINDS = ["", "allocate", "deallocate", "map", "unmap", "move", "copy", "use", "fail", "tag begins", "tag ends",
  "counter", "resource made", "resource gone"];
const ALLOCATE = 1, DEALLOCATE = 2, MAP = 3, UNMAP = 4, FAIL = 8, COUNTER = 11;
const MOST_COUNTERS = 3;
const SLICE = 1 << 17; // events that are looked at in one go

class Model {
  constructor(head, columns) {
    this.head = head;
    this.unit = head.unit;
    this.events = columns;
    this.count = columns.count;
    this.start = head.window[0];
    this.isWindow = head.window[2] !== "";
    this.end = Math.max(this.start, this.isWindow ? head.window[1] - 1 : head.duration_ns);
    this.tags = new Map(head.tags);
    this.threads = new Map(head.thread_names);
    this.frames = new Map(head.frames.map(([number, file, line, name]) => [number, { file, line, name }]));
    this.stacks = new Map(head.stacks);
    this.resources = new Map(head.resources.map(([id, below, name, space, foreign]) => [id, { id, below, name, space, foreign }]));
  }

  static async build(data) {
    const model = new Model(data.head, await readColumns(data));
    await model.findBlocks();
    await model.addUp();
    model.lines = [];
    await model.addUpHeld();
    await model.readCounters();
    model.findLeaks();
    model.order = new BlockOrder(model);
    await pause();
    return model;
  }

  tagName(number) {
    return number === 0 ? "untagged" : this.tags.get(number) || `tag ${number}`;
  }

  spaceName(resource) {
    return this.resources.get(resource)?.space || "unknown";
  }

  resourceName(number) {
    const found = this.resources.get(number);
    return found ? `${found.name || "resource"} #${number}` : `resource #${number}`;
  }

  /** Who handed out what an event is about, and where. */
  ownerName(event) {
    const resource = this.events.resource[event];
    return resource ? `${this.resourceName(resource)} in ${this.spaceName(resource)}` : "";
  }

  threadName(number) {
    return this.threads.get(number) || (number ? `thread ${number}` : "");
  }

  /** The calls of a stack, the innermost first. */
  stack(number) {
    return (this.stacks.get(number) ?? []).map((frame) => this.frames.get(frame)).filter(Boolean);
  }

  /** Calls a function for every event, in pieces between which the page lives. */
  async forEach(action) {
    for (let from = 0; from < this.count; from += SLICE) {
      const to = Math.min(from + SLICE, this.count);
      for (let event = from; event < to; event += 1) action(event);
      await pause();
    }
  }

  async findBlocks() {
    const { kind } = this.events;
    let traffic = 0;
    for (const one of kind) if (one === ALLOCATE || one === DEALLOCATE) traffic += 1;
    // `event` tells of the block; `start` and `end` are events too: -1 is before the window, the count is never.
    // What tells of a block that was out when the window began has a row behind those of the events.
    const blocks = {
      count: 0, event: new Int32Array(traffic), start: new Int32Array(traffic), end: new Int32Array(traffic),
    };
    this.blocks = blocks;
    this.blockOf = new Int32Array(this.count).fill(-1);
    const table = new BlockTable(this.events, blocks, traffic);
    for (let row = this.count; row < kind.length; row += 1) this.addBlock(row, -1, this.count, table);
    await this.forEach((event) => {
      if (kind[event] === ALLOCATE) this.addBlock(event, event, this.count, table);
      else if (kind[event] === DEALLOCATE) this.endBlock(event, table);
    });
    for (const name of ["event", "start", "end"]) blocks[name] = blocks[name].slice(0, blocks.count);
  }

  addBlock(event, start, end, table) {
    const block = this.blocks.count++;
    this.blocks.event[block] = event;
    this.blocks.start[block] = start;
    this.blocks.end[block] = end;
    if (event < this.count) this.blockOf[event] = block;
    if (table) table.slots[table.slot(event)] = block;
  }

  endBlock(event, table) {
    const block = table.slots[table.slot(event)];
    if (block >= 0 && this.blocks.end[block] === this.count) {
      this.blocks.end[block] = event;
      this.blockOf[event] = block;
    } else if (this.start > 0) {
      this.addBlock(event, -1, event, null); // it began before the window, too long ago to be known
    }
  }

  async addUp() {
    const { kind, depth, nbytes } = this.events;
    const { blockOf } = this;
    this.older = this.olderByResource();
    let out = 0;
    for (const { nbytes: size } of this.older.values()) out += size;
    for (const block of this.begunBefore()) out += this.bytesOf(block);
    this.before = out;
    this.total = new Float64Array(this.count);
    this.change = new Float64Array(this.count); // how each event changes what the program has out, in bytes
    let [most, when] = [out, -1];
    await this.forEach((event) => {
      const block = blockOf[event];
      if (block >= 0 && depth[event] === 0) {
        this.change[event] = kind[event] === ALLOCATE ? nbytes[event] : -nbytes[this.blocks.event[block]];
        out += this.change[event];
        if (out > most) [most, when] = [out, event];
      }
      this.total[event] = out;
    });
    this.peak = { event: when, nbytes: most };
    this.summary = new Summary(this.total);
  }

  /** Program blocks that were out when the window began, as far as they are known. */
  *begunBefore() {
    if (this.start === 0) return;
    for (let block = 0; block < this.blocks.count; block += 1) {
      if (this.blocks.start[block] < 0 && this.depthOf(block) === 0) yield block;
    }
  }

  /** What else was out then and stayed all through the window: {nbytes, count} by resource, which is all that is known. */
  olderByResource() {
    const older = new Map(this.head.carried.map(([resource, nbytes, count]) => [resource, { nbytes, count }]));
    for (const block of this.begunBefore()) {
      const found = older.get(this.events.resource[this.blocks.event[block]]);
      if (!found) continue;
      found.nbytes -= this.bytesOf(block);
      found.count -= 1;
    }
    for (const [resource, { nbytes }] of older) if (nbytes <= 0) older.delete(resource);
    return older;
  }

  /** {nbytes, count} of all of that. */
  get unknown() {
    const sum = { nbytes: 0, count: 0 };
    for (const { nbytes, count } of this.older.values()) {
      sum.nbytes += nbytes;
      sum.count += Math.max(count, 0);
    }
    return sum;
  }

  /** What those at the bottom have of the system: mapped pages, and blocks of resources that map none. */
  async addUpHeld() {
    const { kind, resource, nbytes } = this.events;
    const mapping = new Set();
    for (let event = 0; event < this.count; event += 1) if (kind[event] === MAP) mapping.add(resource[event]);
    const isLeaf = (id) => !mapping.has(id) && !this.resources.get(id)?.below;
    this.held = null;
    if (this.isWindow) return; // what was held when it began is not known
    const held = new Float64Array(this.count);
    let out = 0;
    let differs = false;
    await this.forEach((event) => {
      if (kind[event] === MAP) out += nbytes[event];
      else if (kind[event] === UNMAP) out -= nbytes[event];
      else if (this.blockOf[event] >= 0 && isLeaf(resource[event])) {
        out += kind[event] === ALLOCATE ? nbytes[event] : -this.bytesOf(this.blockOf[event]);
      }
      held[event] = Math.max(out, 0);
      differs ||= held[event] !== this.total[event];
    });
    if (!differs) return;
    this.held = held;
    this.lines.push({ name: "held from the system", values: held, summary: new Summary(held) });
  }

  /** Counters of bytes, such as what is resident of the process, as lines beside the usage. */
  async readCounters() {
    const { kind, tag, other } = this.events;
    const lines = new Map();
    await this.forEach((event) => {
      if (kind[event] !== COUNTER) return;
      const name = this.tagName(tag[event]);
      if (!name.endsWith("_bytes") || (!lines.has(name) && lines.size >= MOST_COUNTERS)) return;
      if (!lines.has(name)) lines.set(name, { values: new Float64Array(this.count), from: 0, value: 0 });
      const line = lines.get(name);
      line.values.fill(line.value, line.from, event);
      [line.from, line.value] = [event, other[event]];
    });
    for (const [name, { values, from, value }] of lines) {
      values.fill(value, from);
      this.lines.push({ name, values, summary: new Summary(values), isCounter: true });
    }
  }

  findLeaks() {
    this.leaked = { count: 0, nbytes: 0 };
    this.inUse = { count: 0, nbytes: 0 }; // by libraries of others, which may keep what they have
    this.largest = -1;
    for (let block = 0; block < this.blocks.count; block += 1) {
      if (this.depthOf(block) !== 0) continue;
      if (this.largest < 0 || this.bytesOf(block) > this.bytesOf(this.largest)) this.largest = block;
      if (this.blocks.end[block] === this.count) {
        const owner = this.resources.get(this.events.resource[this.blocks.event[block]]);
        const left = owner?.foreign ? this.inUse : this.leaked;
        left.count += 1;
        left.nbytes += this.bytesOf(block);
      }
    }
    this.failed = [];
    for (let event = 0; event < this.count; event += 1) if (this.events.kind[event] === FAIL) this.failed.push(event);
  }

  bytesOf(block) {
    return this.events.nbytes[this.blocks.event[block]];
  }

  depthOf(block) {
    return this.events.depth[this.blocks.event[block]];
  }

  /** Whether it is known when a block began: it may have been too long before the window. */
  isDated(block) {
    return this.blocks.start[block] >= 0 || this.blocks.event[block] >= this.count;
  }

  startOf(block) {
    return this.isDated(block) ? this.events.time[this.blocks.event[block]] : this.start;
  }

  endOf(block) {
    const event = this.blocks.end[block];
    return event >= this.count ? this.end : this.events.time[event];
  }

  isLive(block, event) {
    return this.blocks.start[block] <= event && event < this.blocks.end[block];
  }

  /** How many blocks the program had out after an event. */
  liveCount(event) {
    let count = 0;
    for (let block = 0; block < this.blocks.count; block += 1) {
      if (this.isLive(block, event) && this.depthOf(block) === 0) count += 1;
    }
    return count;
  }

  totalAt(event) {
    return event < 0 ? this.before : this.total[event];
  }

  timeAt(event) {
    return event < 0 ? this.start : this.events.time[event];
  }

  /** The first event at or after a time. */
  eventAfter(time) {
    let low = 0;
    let high = this.count;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.events.time[middle] < time) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}
