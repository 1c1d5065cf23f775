// Owns: bytes, times and counts as people read them, and round numbers for axes. Must not know: what they are of.

const BINARY = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
const TIMES = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]];

function threeDigits(value) {
  const text = Math.abs(value) >= 100 ? value.toFixed(0) : value.toPrecision(3);
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

function formatBytes(nbytes) {
  const magnitude = Math.abs(nbytes);
  if (magnitude < 1024) return `${Math.round(nbytes)} B`;
  let power = Math.min(Math.floor(Math.log2(magnitude) / 10), BINARY.length - 1);
  if (magnitude / 2 ** (10 * power) >= 1023.5 && power < BINARY.length - 1) power += 1;
  return `${threeDigits(nbytes / 2 ** (10 * power))} ${BINARY[power]}`;
}

function formatCount(count) {
  return Math.round(count).toLocaleString("en-US");
}

function plural(count, noun) {
  return `${formatCount(count)} ${noun}${count === 1 ? "" : "s"}`;
}

/** A length of time. Traces of lifetimes count steps and not nanoseconds. */
function formatSpan(span, unit) {
  if (unit === "step") return plural(span, "step");
  for (const [scale, name] of TIMES) {
    if (Math.abs(span) >= scale * 0.9995) return `${threeDigits(span / scale)} ${name}`;
  }
  return "0 s";
}

/** A moment, with as many digits as a range of `span` needs to tell its pixels apart. */
function formatMoment(time, unit, span) {
  if (unit === "step") return `step ${formatCount(time)}`;
  const [scale, name] = TIMES.find(([size]) => Math.max(time, span) >= size) ?? TIMES[3];
  const digits = Math.max(0, Math.min(9, Math.ceil(-Math.log10(Math.max(span, 1) / 1000 / scale))));
  return `${(time / scale).toFixed(Math.min(digits, Math.log10(scale)))} ${name}`;
}

/** A time on an axis that ends at `high` and has a tick every `step`. */
function formatTick(tick, unit, high, step) {
  if (unit === "step") return formatCount(tick);
  if (tick === 0) return "0";
  const [scale, name] = TIMES.find(([size]) => high >= size) ?? TIMES[3];
  const digits = Math.max(0, Math.ceil(Math.log10(scale / (step || high || 1)) - 1e-9));
  return `${(tick / scale).toFixed(Math.min(digits, 9))} ${name}`;
}

/** Multiples of 1, 2 or 5 times a power of ten between two numbers. */
function decimalTicks(low, high, most) {
  const rough = Math.max((high - low) / most, 1e-9);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = Math.max(1, [1, 2, 5, 10].map((digit) => digit * power).find((size) => size >= rough));
  const ticks = [];
  const first = Math.ceil(low / step) * step;
  // Counted, because numbers past 2^53 do not grow by a small step.
  for (let place = 0; place <= most + 1 && first + place * step <= high; place += 1) ticks.push(first + place * step);
  return ticks;
}

/** Multiples of a power of two, from 0. */
function binaryTicks(high, most) {
  const step = 2 ** Math.max(0, Math.ceil(Math.log2(Math.max(high, 1) / most)));
  const ticks = [];
  for (let place = 0; place <= most && place * step <= high; place += 1) ticks.push(place * step);
  return ticks;
}

/** The day and minute of nanoseconds since 1970, as a part of a sentence; nothing for what is no day. */
function formatDay(wall) {
  const time = new Date((wall ?? NaN) / 1e6);
  return Number.isNaN(time.getTime()) ? "" : ` of ${time.toISOString().slice(0, 16).replace("T", " ")} UTC`;
}

function formatAddress(address) {
  return `0x${address.toString(16)}`;
}
