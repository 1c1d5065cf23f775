// Owns: `window.tensormem`, through which a program can ask what the page shows, and the beginning of everything.
// What is here is documented in docs/how-to/look-at-a-trace.md. Must not know: how a view draws.

/** What of the answers is about the trace. Blocks and events are numbers from 0. */
function traceQueries(page) {
  return {
    summary() {
      const { model } = page;
      const { peak, leaked, failed, largest } = model;
      return {
        events: model.count, peak_bytes: peak.nbytes, peak_event: peak.event, leaked_bytes: leaked.nbytes,
        leaked_blocks: leaked.count, failures: failed.length, largest, from_ns: model.start, to_ns: model.end,
        held_bytes: model.held ? model.held.reduce((most, one) => Math.max(most, one), 0) : null,
      };
    },
    eventAt: (time) => page.model.eventAfter(time + 1) - 1,
    usage(by, event) {
      const grouping = page.groupingBy(by);
      const values = grouping.at(event);
      return Object.fromEntries(grouping.names.map((name, group) => [name, values[group]]));
    },
    block(block) {
      const { model } = page;
      const event = model.blocks.event[block];
      return {
        nbytes: model.bytesOf(block), tag: model.tagName(model.events.tag[event]), address: model.events.address[event],
        start_ns: model.startOf(block), end_ns: model.endOf(block),
        start_event: model.blocks.start[block], end_event: model.blocks.end[block],
      };
    },
  };
}

/** What is about the views, and what does as a user would. */
function viewQueries(page) {
  const { usage, map, flame, tables } = page;
  return {
    state: () => ({
      by: page.by, axis: usage.axis, from: usage.from, to: usage.to, moment: page.moment, selected: page.selected,
      found: page.found ? { blocks: page.found.count, peak_bytes: page.found.peak } : null,
      theme: document.documentElement.dataset.theme, is_window: page.model.isWindow,
    }),
    map() {
      const { blocks, nbytes, holes, regions } = map.state;
      return { blocks, nbytes, holes, regions: regions.length, boxes: map.boxes };
    },
    where: (block) => map.boxesOf(block),
    xOf: (event) => usage.xOfEvent(event),
    heightAt: (event) => usage.yOf(page.model.totalAt(event)),
    flame: () => flame.boxes.map(({ node, x, y, width }) => ({ path: node.path, nbytes: node.nbytes, x, y, width })),
    table: () => tables.rows.slice(),
    frames: () => usage.frames,
    pictures: () => usage.pictures,
    bands: () => usage.bandsFacts(),
    blockAt: (x, y) => usage.blockAt(x, y),
    goTo: (event) => page.goTo(event),
    select: (block) => page.select(block),
    zoom: (from, to) => usage.zoom(from, to),
    stackBy: (by) => page.setBy(by),
  };
}

function nextFrame() {
  return new Promise((resolve) => requestAnimationFrame(resolve));
}

const page = new Page();
const ready = page.load().then(nextFrame).then(nextFrame);
ready.catch((error) => page.say(`The data cannot be read: ${error.message}`, true));
window.tensormem = Object.freeze({ ready, ...traceQueries(page), ...viewQueries(page) });
