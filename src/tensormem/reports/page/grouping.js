// Owns: usage by group: which group a block is in (its space, tag, resource or size), and what each group had out after
// any event. Must not know: pixels and colours.

const MOST_GROUPS = 10;
const OLDER = Symbol("older");

class Grouping {
  constructor(model, by) {
    this.model = model;
    this.by = by;
    const { keyOf, nameOf, older } = this.rules(by);
    this.assign(keyOf, nameOf, older);
    this.followAll();
  }

  rules(by) {
    const { model } = this;
    const { resource, tag, nbytes } = model.events;
    if (by === "tag" || by === "size") {
      const older = model.unknown.nbytes;
      const text = by === "tag" ? (key) => key : (key) => `of ${formatBytes(key)}`;
      const nameOf = (key) => (key === OLDER ? `before the window, ${by} unknown` : text(key));
      const keyOf = by === "tag" ? (event) => model.tagName(tag[event]) : (event) => nbytes[event];
      return { keyOf, nameOf, older: older ? [[OLDER, older]] : [] };
    }
    const name = by === "space" ? (id) => model.spaceName(id) : (id) => model.resourceName(id);
    const older = [...model.older].map(([id, { nbytes }]) => [name(id), nbytes]);
    return { keyOf: (event) => name(resource[event]), nameOf: (key) => key, older };
  }

  /** Numbers the groups; all but those with the highest peaks are one group, "others". */
  assign(keyOf, nameOf, older) {
    const { model } = this;
    const keys = new Map();
    const number = (key) => {
      if (!keys.has(key)) keys.set(key, keys.size);
      return keys.get(key);
    };
    const numberOfEvent = this.memo(keyOf, number);
    const raw = new Uint32Array(model.blocks.count);
    for (let block = 0; block < raw.length; block += 1) raw[block] = numberOfEvent(model.blocks.event[block]);
    for (const [key] of older) number(key);
    const { peaks, steady, before } = this.peaksOf(raw, keys, older);
    const ranked = [...keys.keys()].map((key, place) => ({ key, place, peak: peaks[place], steady: steady[place] }));
    let kept = ranked.filter((one) => one.peak > 0).sort((one, two) => two.peak - one.peak);
    const alone = kept.length > MOST_GROUPS ? MOST_GROUPS - 1 : kept.length;
    // The steadiest lies lowest, so that what comes and goes does not shake the rest.
    kept = [...kept.slice(0, alone).sort((one, two) => two.steady - one.steady), ...kept.slice(alone)];
    const place = new Uint8Array(keys.size).fill(alone);
    kept.slice(0, alone).forEach((one, rank) => (place[one.place] = rank));
    this.names = kept.slice(0, alone).map((one) => nameOf(one.key));
    this.merged = kept.length - alone;
    if (this.merged) this.names.push(`${formatCount(this.merged)} others`);
    this.size = this.names.length;
    this.ofBlock = raw.map((one) => place[one]);
    this.base = new Float64Array(this.size + 1);
    before.forEach((nbytes, one) => (this.base[place[one]] += nbytes));
  }

  /** Names are looked up once for each size or pair of resource and tag, not once for each block. */
  memo(keyOf, number) {
    const { resource, tag, nbytes } = this.model.events;
    const known = new Map();
    return (event) => {
      const pair = this.by === "size" ? nbytes[event] : resource[event] * 2 ** 32 + tag[event];
      let found = known.get(pair);
      if (found === undefined) known.set(pair, (found = number(keyOf(event))));
      return found;
    };
  }

  peaksOf(raw, keys, older) {
    const { model } = this;
    const out = new Float64Array(keys.size);
    for (const [key, nbytes] of older) out[keys.get(key)] += nbytes;
    for (const block of model.begunBefore()) out[raw[block]] += model.bytesOf(block);
    const before = out.slice();
    const peaks = out.slice();
    const sums = new Float64Array(keys.size);
    const since = new Float64Array(keys.size);
    for (let event = 0; event < model.count; event += 1) {
      const change = model.change[event];
      if (change === 0) continue;
      const group = raw[model.blockOf[event]];
      sums[group] += out[group] * (event - since[group]);
      since[group] = event;
      out[group] += change;
      if (out[group] > peaks[group]) peaks[group] = out[group];
    }
    const steady = sums.map((sum, group) => (sum + out[group] * (model.count - since[group])) / peaks[group]);
    return { peaks, steady, before };
  }

  /** Whether the colours of these groups tell blocks apart: not if nearly all are of one group. */
  get tellsApart() {
    const most = this.peaks.reduce((sum, peak) => Math.max(sum, peak), 0);
    const others = this.merged ? this.peaks[this.size - 1] : 0;
    return this.size > 1 && others < most;
  }

  followAll() {
    const { model, size } = this;
    const out = this.base.slice();
    this.points = new Float64Array(Math.ceil(model.count / STRIDE + 1) * size);
    this.ofEvent = new Uint8Array(model.count);
    this.peaks = out.slice(0, size);
    for (let event = 0; event < model.count; event += 1) {
      if (event % STRIDE === 0) this.points.set(out.subarray(0, size), (event / STRIDE) * size);
      const change = model.change[event];
      if (change === 0) continue;
      const group = (this.ofEvent[event] = this.ofBlock[model.blockOf[event]]);
      out[group] += change;
      if (out[group] > this.peaks[group]) this.peaks[group] = out[group];
    }
  }

  groupOf(block) {
    return Math.min(this.ofBlock[block], this.size - 1);
  }

  /** What every group had out after an event; -1 is before the first. */
  at(event, into = new Float64Array(this.size)) {
    const { model, size } = this;
    if (event < 0) {
      into.set(this.base.subarray(0, size));
      return into;
    }
    const point = Math.floor(event / STRIDE);
    into.set(this.points.subarray(point * size, point * size + size));
    for (let next = point * STRIDE; next <= event; next += 1) into[this.ofEvent[next]] += model.change[next];
    return into;
  }
}
