// Owns: what is written in words: the headline figures, the event at hand, the selected block, the legend.
// Must not know: how anything is drawn.

function tile(title, value, detail, options = {}) {
  const box = element(options.click ? "button" : "div", `tile ${options.kind ?? ""}`,
    element("span", "tile-title", title), element("strong", "", value), element("span", "tile-detail", detail));
  if (options.click) box.addEventListener("click", options.click);
  return box;
}

/** The headline: the peak and who had it, what was never given back, the largest block, what was held, the events. */
function drawTiles(root, page) {
  const { model } = page;
  const { peak, leaked, inUse, largest, head } = model;
  const tiles = [tile("Peak", formatBytes(peak.nbytes), peakDetail(page), { click: () => page.goTo(peak.event) })];
  const end = model.isWindow ? " at the end of the window" : "";
  if (inUse.count) {
    tiles.push(tile("In use at the end", formatBytes(inUse.nbytes), `${plural(inUse.count, "block")} of libraries${end}`,
      { click: () => page.showTable("leaked") }));
  }
  if (leaked.count || !inUse.count) {
    tiles.push(tile("Never given back", formatBytes(leaked.nbytes), `${plural(leaked.count, "block")}${end}`,
      { kind: leaked.count && !model.isWindow ? "alarm" : "", click: () => page.showTable("leaked") }));
  }
  if (largest >= 0) {
    tiles.push(tile("Largest block", formatBytes(model.bytesOf(largest)), page.blockLabel(largest),
      { click: () => page.select(largest) }));
  }
  if (model.held) tiles.push(heldTile(model));
  const lost = head.dropped ? `, ${formatCount(head.dropped)} lost` : "";
  tiles.push(tile(model.isWindow ? "Events in the window" : "Events", formatCount(model.count),
    `in ${formatSpan(model.end - model.start, model.unit)}${lost}`, { kind: head.dropped ? "warn" : "" }));
  if (model.failed.length) {
    tiles.push(tile("Failures", formatCount(model.failed.length), "click for the first",
      { kind: "alarm", click: () => page.goTo(model.failed[0]) }));
  }
  root.replaceChildren(...tiles);
}

function peakDetail(page) {
  const { model } = page;
  if (!model.blocks.count && !model.before) return "nothing was allocated";
  const tags = page.groupingBy("tag");
  const when = `at ${formatMoment(model.timeAt(model.peak.event), model.unit, model.end - model.start)}`;
  if (!tags.tellsApart) return `${when} · ${plural(model.liveCount(model.peak.event), "block")}`;
  const values = tags.at(model.peak.event);
  const first = values.indexOf(Math.max(...values));
  return `${when} · ${threeDigits((100 * values[first]) / Math.max(model.peak.nbytes, 1))} % ${tags.names[first]}`;
}

function heldTile(model) {
  let most = 0;
  for (const nbytes of model.held) most = Math.max(most, nbytes);
  const times = threeDigits(most / Math.max(model.peak.nbytes, 1));
  return tile("Held from the system", formatBytes(most), `at most; ${times}× the peak in use`);
}

/** A list of facts: [[name, value], ...]; empty values are left out. */
function factList(facts) {
  const shown = facts.filter(([, value]) => value !== "" && value !== null && value !== undefined);
  return element("dl", "", ...shown.flatMap(([name, value]) => [element("dt", "", name), element("dd", "", value)]));
}

/** The end of a path, which is what tells files apart. */
function shortPath(path) {
  const parts = path.split("/");
  return parts.length > 3 ? `…/${parts.slice(-2).join("/")}` : path;
}

function stackList(model, number) {
  const frames = model.stack(number);
  if (!frames.length) return "";
  return element("ol", "stack", ...frames.map((frame) => {
    const place = element("span", "place", `${shortPath(frame.file)}:${frame.line}`);
    place.title = frame.file;
    return element("li", "", element("b", "", frame.name), " ", place);
  }));
}

function drawMoment(root, page) {
  const { model, moment } = page;
  if (moment < 0) {
    root.replaceChildren(element("p", "note", model.count ? "Before the first event." : "There are no events."));
    return;
  }
  const { events } = model;
  const kind = KINDS[events.kind[moment]] ?? `kind ${events.kind[moment]}`;
  const block = model.blockOf[moment];
  const place = `${formatCount(moment + 1)} of ${formatCount(model.count)}: `;
  const title = element("h3", "", place, element("b", `kind-${events.kind[moment]}`, kind));
  const isCounter = events.kind[moment] === COUNTER;
  const facts = factList([
    ["time", formatMoment(events.time[moment], model.unit, model.end - model.start)],
    ["size", events.nbytes[moment] ? formatBytes(events.nbytes[moment]) : ""],
    ["tag", events.tag[moment] ? model.tagName(events.tag[moment]) : ""],
    ["value", isCounter ? formatCount(events.other[moment]) : ""],
    ["resource", model.ownerName(moment)],
    ["address", events.address[moment] ? formatAddress(events.address[moment]) : ""],
    ["asked by", events.depth[moment] ? "a resource above it" : ""],
    ["thread", model.threadName(events.thread[moment])],
    ["stream", events.stream[moment] ? formatCount(events.stream[moment]) : ""],
    ["in use after it", formatBytes(model.total[moment])],
  ]);
  const parts = [title, facts];
  if (block >= 0 && block !== page.selected && model.depthOf(block) === 0) {
    parts.push(button("Select its block", () => page.select(block)));
  }
  root.replaceChildren(...parts);
}

function button(text, action) {
  const made = element("button", "plain", text);
  made.addEventListener("click", action);
  return made;
}

function drawSelection(root, page) {
  const { model, selected } = page;
  if (selected < 0) {
    root.replaceChildren(element("p", "note", "None yet. Click one in any view, and it is marked in all."), keyList());
    return;
  }
  const event = model.blocks.event[selected];
  const { events } = model;
  const span = model.end - model.start;
  const isOut = model.blocks.end[selected] >= model.count;
  const start = model.blocks.start[selected];
  const lived = formatSpan(model.endOf(selected) - model.startOf(selected), model.unit);
  const moment = model.isDated(selected) ? formatMoment(model.startOf(selected), model.unit, span) : "";
  const began = [moment, start < 0 ? "before the window" : ""].filter(Boolean).join(", ");
  const facts = factList([
    ["size", `${formatBytes(model.bytesOf(selected))} (${formatCount(model.bytesOf(selected))} B)`],
    ["tag", model.tagName(events.tag[event])],
    ["resource", model.ownerName(event)],
    ["address", events.address[event] ? formatAddress(events.address[event]) : ""],
    ["began", began],
    ["ended", isOut ? "never" : formatMoment(model.endOf(selected), model.unit, span)],
    ["lived", `${model.isDated(selected) ? "" : "more than "}${lived}`],
    ["thread", model.threadName(events.thread[event])],
    ["stream", events.stream[event] ? formatCount(events.stream[event]) : ""],
    ["generation", formatCount(events.generation[event])],
  ]);
  const go = element("div", "buttons");
  if (start >= 0) go.append(button("Go to its beginning", () => page.goTo(start)));
  if (!isOut) go.append(button("Go to its end", () => page.goTo(model.blocks.end[selected])));
  go.append(button("Deselect", () => page.select(-1)));
  root.replaceChildren(facts, go, stackList(model, events.stack[event]));
}

function keyList() {
  const rows = KEYS.flatMap(([keys, what]) => [
    element("dt", "", ...keys.split(" ").flatMap((key) => [element("kbd", "", key), " "])), element("dd", "", what),
  ]);
  return element("dl", "keys", ...rows);
}

function legendText(name, nbytes) {
  return [element("span", "name", name), element("span", "number", formatBytes(nbytes))];
}

/** Groups with what they have at a moment; click to see one alone. */
function drawLegend(root, page, event) {
  const { model } = page;
  if (!model.count) return void root.replaceChildren();
  const shown = page.colorGrouping;
  const values = shown.at(event);
  const rows = shown.names.map((name, group) => {
    const swatch = element("i", "swatch");
    swatch.style.background = theme.group(shown, group);
    const row = element("button", page.isDimmed(group) ? "dimmed" : "", swatch, ...legendText(name, values[group]));
    row.title = `${name}: at most ${formatBytes(shown.peaks[group])}`;
    row.addEventListener("click", () => page.solo(group));
    return row;
  });
  const total = element("div", "total", ...legendText("in use", model.totalAt(event)));
  const parts = [total, ...rows.reverse()];
  for (const line of model.lines) {
    const row = element("button", page.shows(line.name) ? "" : "dimmed", element("i", line.isCounter ? "dots" : "dash"),
      ...legendText(line.name, event < 0 ? 0 : line.values[event]));
    row.title = `${line.name}: click to ${page.shows(line.name) ? "hide" : "show"}`;
    row.addEventListener("click", () => page.toggle(line.name));
    parts.push(row);
  }
  if (page.found) {
    const { text, total: out } = page.found;
    parts.push(element("div", "found", element("i", "line"), ...legendText(text, event < 0 ? 0 : out[event])));
  }
  root.replaceChildren(...parts);
}
