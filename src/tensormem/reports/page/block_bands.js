// Owns: usage drawn block by block: a band for each of the largest blocks in sight, from its beginning to its end, lying
// on those that are older; the rest is one grey band on top. Pixels are written by hand, and which block each belongs to
// is kept, so that the cost is that of the picture and not of the trace. Must not know: what is picked and why.

const MOST_BANDS = 3000;

/** The blocks that cover most of the picture, by when they began. */
function largestInSight(view) {
  const { model } = view;
  const { blocks } = model;
  const first = view.eventAfter(view.from) - 1;
  const last = view.eventAfter(view.to);
  const weights = new Float64Array(blocks.count);
  const counts = new Uint32Array(1024);
  for (let block = 0; block < blocks.count; block += 1) {
    if (blocks.end[block] <= first || blocks.start[block] > last || model.depthOf(block) !== 0) continue;
    const width = Math.min(view.xOfEvent(blocks.end[block]), view.width) - Math.max(view.xOfEvent(blocks.start[block]), 0);
    weights[block] = Math.max(width, 0.25) * (model.bytesOf(block) + 1);
    counts[bucketOf(weights[block])] += 1;
  }
  let least = counts.length - 1;
  for (let taken = 0; least > 0 && taken + counts[least] <= MOST_BANDS; least -= 1) taken += counts[least];
  const chosen = [];
  for (let block = 0; block < blocks.count; block += 1) {
    if (weights[block] > 0 && bucketOf(weights[block]) > least) chosen.push(block);
  }
  // One size many times over: all of them in one bucket, and no room for all.
  for (let block = 0; block < blocks.count && chosen.length < MOST_BANDS; block += 1) {
    if (weights[block] > 0 && bucketOf(weights[block]) === least) chosen.push(block);
  }
  return chosen.sort((one, two) => blocks.start[one] - blocks.start[two]);
}

function bucketOf(weight) {
  return Math.min(Math.max(Math.floor(Math.log2(weight) * 8) + 64, 0), 1023);
}

function parseColor(color) {
  const number = parseInt(color.slice(1), 16);
  return [number >> 16, (number >> 8) & 255, number & 255];
}

function packColor([red, green, blue], factor, alpha = 255) {
  const part = (value) => Math.max(0, Math.min(255, Math.round(value * factor)));
  return ((alpha << 24) | (part(blue) << 16) | (part(green) << 8) | part(red)) >>> 0;
}

function drawBlockBands(view, context, { high }) {
  const { model, page, plot, ratio } = view;
  const [width, height] = [high.length, Math.round(plot.height * ratio)];
  const chosen = largestInSight(view);
  const groups = page.colorGrouping;
  const palette = Array.from({ length: groups.size }, (_, group) => parseColor(theme.group(groups, group)));
  const fills = chosen.map((block) => packColor(palette[page.colorGroup(block)], 0.82 + ((block * 7) % 5) * 0.07, page.isDimmedBlock(block) ? 60 : 255));
  const edges = chosen.map((block) => packColor(palette[page.colorGroup(block)], 0.6));
  const rest = packColor(parseColor(theme.groups[MOST_GROUPS - 1]), 1, 120);
  const image = new ImageData(width, height);
  const pixels = new Uint32Array(image.data.buffer);
  const owners = new Int32Array(width * height).fill(-1);
  const scale = height / view.top;
  for (let column = 0; column < width; column += 1) {
    const event = high[column];
    let sum = 0;
    for (let place = 0; place < chosen.length; place += 1) {
      const block = chosen[place];
      if (!model.isLive(block, event)) continue;
      const bottom = height - Math.round(sum * scale);
      sum += model.bytesOf(block);
      const top = Math.max(height - Math.round(sum * scale), 0);
      fillColumn(pixels, owners, width, column, top, bottom, fills[place], edges[place], block);
    }
    const [top, bottom] = [model.totalAt(event), sum].map((nbytes) => Math.max(height - Math.round(nbytes * scale), 0));
    fillColumn(pixels, owners, width, column, top, bottom, rest, rest, -1);
  }
  outline(pixels, owners, width, page.selected, packColor(parseColor(theme.colors.accent), 1));
  const sheet = new OffscreenCanvas(width, height);
  sheet.getContext("2d").putImageData(image, 0, 0);
  context.drawImage(sheet, plot.left, plot.top, plot.width, plot.height);
  return {
    chosen,
    blockAt: (column, row) => (column < 0 || column >= width || row < 0 || row >= height ? -1 : owners[row * width + column]),
  };
}

function fillColumn(pixels, owners, width, column, top, bottom, fill, edge, block) {
  for (let row = top; row < bottom; row += 1) {
    pixels[row * width + column] = row === top && bottom - top > 3 ? edge : fill;
    owners[row * width + column] = block;
  }
}

function outline(pixels, owners, width, block, color) {
  if (block < 0) return;
  for (let at = 0; at < owners.length; at += 1) {
    if (owners[at] === block) pixels[at] = color;
  }
}
