// Owns: usage drawn block by block: a band for each of the largest blocks in sight, from its beginning to its end,
// lying on those that are older; the rest is one grey band on top. Which block a pixel belongs to is kept, so that the
// cost is that of the picture and not of the trace. Must not know: what is picked and why.

const MOST_BANDS = 3000;

/** Where blocks begin and end on an axis, for all blocks at once. */
function spansOf(model, axis) {
  model.spans ??= {};
  if (axis === "events") return { from: model.blocks.start, to: model.blocks.end };
  if (!model.spans.from) {
    const { blocks } = model;
    model.spans = { from: new Float64Array(blocks.count), to: new Float64Array(blocks.count) };
    for (let block = 0; block < blocks.count; block += 1) {
      model.spans.from[block] = model.startOf(block);
      model.spans.to[block] = model.endOf(block);
    }
  }
  return model.spans;
}

/** The blocks that cover most of the picture, by when they began. */
function largestInSight(view) {
  const { model } = view;
  const { blocks } = model;
  const { from, to } = spansOf(model, view.axis);
  const least = (view.to - view.from) / 4000;
  const weights = new Float64Array(blocks.count);
  const counts = new Uint32Array(2048);
  for (let block = 0; block < blocks.count; block += 1) {
    if (to[block] < view.from || from[block] > view.to || model.depthOf(block) !== 0) continue;
    const width = Math.min(to[block], view.to) - Math.max(from[block], view.from);
    weights[block] = Math.max(width, least) * (model.bytesOf(block) + 1);
    counts[bucketOf(weights[block])] += 1;
  }
  let lowest = counts.length - 1;
  let sum = counts[lowest];
  while (lowest > 0 && sum + counts[lowest - 1] <= MOST_BANDS) sum += counts[(lowest -= 1)];
  const chosen = [];
  const rest = [];
  for (let block = 0; block < blocks.count; block += 1) {
    if (weights[block] === 0) continue;
    const bucket = bucketOf(weights[block]);
    if (bucket >= lowest) chosen.push(block);
    else if (bucket === lowest - 1 && rest.length < MOST_BANDS) rest.push(block);
  }
  // One size many times over is one bucket, and there is no room for all of it.
  chosen.push(...rest.slice(0, Math.max(MOST_BANDS - chosen.length, 0)));
  return chosen.sort((one, two) => blocks.start[one] - blocks.start[two]);
}

function bucketOf(weight) {
  return Math.min(Math.max(Math.floor(Math.log2(weight) * 16) + 256, 0), 2047);
}

/** Draws the bands into a sheet; `at(column, row)` of what it gives is the block of a pixel, or -1. */
function drawBlockBands(view, sheet, { high }) {
  const { model, page } = view;
  const { width, height } = sheet;
  const { start, end } = model.blocks;
  const groups = page.colorGrouping;
  const palette = Array.from({ length: groups.size }, (_, group) => parseColor(theme.group(groups, group)));
  const chosen = largestInSight(view);
  const rest = packColor(parseColor(theme.groups[MOST_GROUPS - 1]), 1, 120);
  const fills = new Map(chosen.map((block) => [block, bandColor(page, block, palette)]));
  const owners = new Int32Array(width * height).fill(-1);
  const rowOf = (nbytes) => Math.min(Math.max(height - Math.round((nbytes * height) / view.top), 0), height);
  let active = [];
  let next = 0;
  for (let column = 0; column < width; column += 1) {
    const event = high[column];
    while (next < chosen.length && start[chosen[next]] <= event) active.push(chosen[next++]);
    active = active.filter((block) => end[block] > event);
    let sum = 0;
    let bottom = height;
    for (const block of active) {
      const top = rowOf((sum += model.bytesOf(block)));
      const [fill, edge] = fills.get(block);
      sheet.fill(column, top, bottom, fill);
      if (bottom - top > 3) sheet.fill(column, top, top + 1, edge);
      for (let row = top; row < bottom; row += 1) owners[row * width + column] = block;
      bottom = top;
    }
    sheet.fill(column, rowOf(model.totalAt(event)), bottom, rest);
  }
  const isInside = (column, row) => column >= 0 && column < width && row >= 0 && row < height;
  return { chosen, at: (column, row) => (isInside(column, row) ? owners[row * width + column] : -1) };
}

function bandColor(page, block, palette) {
  const isSelected = block === page.selected;
  const color = isSelected ? parseColor(theme.colors.accent) : palette[page.colorGroup(block)];
  const alpha = page.isDimmedBlock(block) && !isSelected ? 60 : 255;
  const shade = isSelected ? 1 : 0.82 + ((block * 7) % 5) * 0.07; // neighbours differ a little
  return [packColor(color, shade, alpha), packColor(color, 0.6, alpha)];
}
