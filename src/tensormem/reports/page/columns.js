// Owns: the events as columns of numbers, put together from byte planes and sorted by time.
// Must not know: what events mean.

const FIELDS = [
  ["time", 0, 8, Float64Array], ["address", 8, 8, Float64Array], ["nbytes", 16, 8, Float64Array],
  ["generation", 24, 8, Float64Array], ["other", 32, 8, Float64Array], ["stream", 40, 8, Float64Array],
  ["resource", 48, 4, Uint32Array], ["tag", 52, 4, Uint32Array], ["stack", 56, 4, Uint32Array],
  ["kind", 60, 1, Uint8Array], ["depth", 61, 1, Uint8Array], ["detail", 62, 1, Uint8Array],
];

function readColumn(planes, where, count, [, offset, width, Kind]) {
  const column = new Kind(count);
  for (let byte = 0; byte < width; byte += 1) {
    const at = where.get(offset + byte);
    if (at === undefined) continue;
    const scale = 256 ** byte;
    const plane = planes.subarray(at, at + count);
    for (let row = 0; row < count; row += 1) column[row] += plane[row] * scale;
  }
  return column;
}

function readThreads(runs, count) {
  const threads = new Uint32Array(count);
  let at = 0;
  for (const [thread, length] of runs) threads.fill(thread, at, (at += length));
  return threads;
}

/** Rows inside the window in the order of their times; null when all rows are, and are in order already. */
function rowsByTime(time, [start, end]) {
  let isInOrder = true;
  let count = 0;
  for (let row = 0; row < time.length; row += 1) {
    if (row > 0 && time[row] < time[row - 1]) isInOrder = false;
    if (time[row] >= start && time[row] < end) count += 1;
  }
  if (isInOrder && count === time.length) return null;
  let rows = new Uint32Array(count);
  let latest = 0;
  for (let row = 0, at = 0; row < time.length; row += 1) {
    if (time[row] < start || time[row] >= end) continue;
    rows[at++] = row;
    latest = Math.max(latest, time[row] - start);
  }
  // By sixteen bits at a time, from the lowest: rows of one moment keep their order.
  for (let scale = 1; !isInOrder && scale <= latest; scale *= 65536) rows = sortByDigit(rows, time, start, scale);
  return rows;
}

function sortByDigit(rows, time, start, scale) {
  const starts = new Uint32Array(65537);
  const digits = new Uint16Array(rows.length);
  for (let at = 0; at < rows.length; at += 1) {
    digits[at] = Math.floor((time[rows[at]] - start) / scale) % 65536;
    starts[digits[at] + 1] += 1;
  }
  for (let digit = 1; digit <= 65536; digit += 1) starts[digit] += starts[digit - 1];
  const sorted = new Uint32Array(rows.length);
  for (let at = 0; at < rows.length; at += 1) sorted[starts[digits[at]]++] = rows[at];
  return sorted;
}

function taken(column, rows) {
  const result = new column.constructor(rows.length);
  for (let at = 0; at < rows.length; at += 1) result[at] = column[rows[at]];
  return result;
}

/** {count, time, address, ..., thread}: one array each. Behind the `count` events come the allocations of blocks that
 * were out when the window began. */
async function readColumns({ head, planes }) {
  const length = head.events + head.carried_blocks;
  const where = new Map(head.planes.map((number, place) => [number, place * length]));
  const columns = {};
  for (const field of FIELDS) {
    columns[field[0]] = readColumn(planes, where, length, field);
    await pause();
  }
  columns.thread = readThreads(head.threads, length);
  let rows = rowsByTime(columns.time.subarray(0, head.events), head.window);
  if (rows && head.carried_blocks) {
    const all = new Uint32Array(rows.length + head.carried_blocks);
    all.set(rows);
    for (let place = 0; place < head.carried_blocks; place += 1) all[rows.length + place] = head.events + place;
    rows = all;
  }
  for (const name of rows ? Object.keys(columns) : []) {
    columns[name] = taken(columns[name], rows);
    await pause();
  }
  columns.count = columns.time.length - head.carried_blocks;
  return columns;
}
