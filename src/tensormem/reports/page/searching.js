// Owns: which blocks a text means: by tag, space, resource, thread, a frame of the stack, an address or a size; and how
// many bytes of them were out over time. Must not know: where it was typed.

const SIZES = /^([<>])\s*(\d+(?:\.\d+)?)\s*(b|kib|mib|gib|tib)?$/;
const SCALES = { b: 1, kib: 2 ** 10, mib: 2 ** 20, gib: 2 ** 30, tib: 2 ** 40 };

/** Some numbers, asked for a million times: an array where they are small. */
class Numbers {
  constructor(numbers) {
    this.all = new Set(numbers);
    this.flags = new Uint8Array(1 << 16);
    for (const number of this.all) if (number < this.flags.length) this.flags[number] = 1;
  }

  has(number) {
    return number < this.flags.length ? this.flags[number] === 1 : this.all.has(number);
  }
}

/** Numbers whose names have the text in them. */
function numbersNamed(names, text) {
  const named = [...names].filter(([, name]) => String(name).toLowerCase().includes(text));
  return new Numbers(named.map(([number]) => number));
}

/** A function of a block, or null for a text that asks for nothing. */
function predicateOf(model, text) {
  const wanted = text.trim().toLowerCase();
  if (!wanted) return null;
  const { events, blocks } = model;
  const size = SIZES.exec(wanted);
  if (size) {
    const limit = Number(size[2]) * SCALES[size[3] ?? "b"];
    return (block) => (size[1] === ">" ? model.bytesOf(block) > limit : model.bytesOf(block) < limit);
  }
  if (/^0x[0-9a-f]+$/.test(wanted)) {
    const address = Number(wanted);
    return (block) => {
      const start = events.address[blocks.event[block]];
      return start <= address && address < start + Math.max(model.bytesOf(block), 1);
    };
  }
  return byName(model, wanted);
}

function byName(model, wanted) {
  const { events, blocks } = model;
  const tags = numbersNamed([[0, "untagged"], ...model.tags], wanted);
  const owners = [...model.resources].map(([id, one]) => [id, `${model.resourceName(id)} ${one.space}`]);
  const resources = numbersNamed(owners, wanted);
  const threads = numbersNamed(model.threads, wanted);
  const calls = [...model.frames].map(([id, one]) => [id, `${one.name} ${one.file}:${one.line}`]);
  const frames = numbersNamed(calls, wanted);
  const through = [...model.stacks].filter(([, list]) => list.some((one) => frames.has(one)));
  const stacks = new Numbers(through.map(([id]) => id));
  return (block) => {
    const event = blocks.event[block];
    return tags.has(events.tag[event]) || resources.has(events.resource[event]) || stacks.has(events.stack[event]) ||
      threads.has(events.thread[event]);
  };
}

/** What a predicate finds: a mask of blocks, how many, the most of them at once, and their bytes after every event. */
class Found {
  constructor(model, text, predicate) {
    this.text = text;
    this.number = Found.count = (Found.count ?? 0) + 1;
    this.mask = new Uint8Array(model.blocks.count);
    this.count = 0;
    for (let block = 0; block < this.mask.length; block += 1) {
      if (model.depthOf(block) !== 0 || !predicate(block)) continue;
      this.mask[block] = 1;
      this.count += 1;
    }
    this.follow(model);
  }

  follow(model) {
    this.total = new Float64Array(model.count);
    let out = 0;
    for (const block of model.begunBefore()) if (this.mask[block]) out += model.bytesOf(block);
    this.peak = out;
    for (let event = 0; event < model.count; event += 1) {
      if (model.blockOf[event] >= 0 && this.mask[model.blockOf[event]]) out += model.change[event];
      this.total[event] = out;
      this.peak = Math.max(this.peak, out);
    }
    this.summary = new Summary(this.total);
  }
}
