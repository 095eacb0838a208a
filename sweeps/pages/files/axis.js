// Numbers with their units as the figures write them, and axes with ticks.

let SCALES = {};
const PLAIN = { multiples: [[1, ""]], binary: false };
const DECIMAL = [[1, "B"], [1e3, "kB"], [1e6, "MB"], [1e9, "GB"], [1e12, "TB"], [1e15, "PB"]];

// Times that people set in longer units than seconds.
const LONG = [[86400, "days"], [86400, "day"], [86400, "d"], [3600, "h"], [60, "min"]];

function setScales(scales) {
  SCALES = scales;
}

function scaleOf(units) {
  if (units === "1" || units === "" || units === undefined) return PLAIN;
  return SCALES[units] || { multiples: [[1, units]], binary: false };
}

// The multiple in which a value is read best.
function pick(multiples, value) {
  const size = Math.abs(value) * (1 + 1e-9);
  if (size === 0) return multiples.find((multiple) => multiple[0] === 1) || multiples[0];
  const fitting = multiples.filter((multiple) => multiple[0] <= size);
  return fitting.length ? fitting[fitting.length - 1] : multiples[0];
}

// A number rounded to significant digits, of two that are as near to the even one.
function rounded(value, digits) {
  if (!/500e/.test(value.toExponential(digits + 2))) return Number(value.toPrecision(digits));
  const [mantissa, exponent] = value.toExponential(digits + 40).split("e");
  const all = mantissa.replace(/[-.]/g, "");
  if (!/^50*$/.test(all.slice(digits)) || Number(all[digits - 1]) % 2) {
    return Number(value.toPrecision(digits));
  }
  const kept = Number(`${all.slice(0, digits)}e${Number(exponent) - digits + 1}`);
  return value < 0 ? -kept : kept;
}

// A number without a needless exponent or zeros.
function numberText(value, digits = 3) {
  if (Number.isNaN(value)) return "none";
  if (!Number.isFinite(value)) return value < 0 ? "−∞" : "∞";
  const whole = Math.abs(value) < 1e6;
  if (whole && (Number.isInteger(value) || Math.abs(value) >= 10 ** digits)) {
    return String(rounded(value, Math.max(Math.floor(Math.log10(Math.abs(value) || 1)) + 1, 1)));
  }
  const near = rounded(value, digits);
  const size = Math.abs(near);
  if (size !== 0 && (size < 1e-4 || size >= 10 ** digits)) {
    return near.toExponential().replace("e+", "e");
  }
  return String(near);
}

// A value with its unit, rounded: 12.5 µs, 450 GB/s.
function valueText(value, units, digits = 4) {
  if (Number.isNaN(value)) return "none";
  const [factor, unit] = pick(scaleOf(units).multiples, value);
  return `${numberText(value / factor, digits)} ${unit}`.trim();
}

// A value that somebody chose: bytes that are round in powers of ten are said so (140 GB).
function givenText(value, units, digits = 4) {
  const scale = scaleOf(units);
  const short = (number) => {
    return Math.abs(Number(number.toPrecision(digits)) - number) <= 1e-9 * Math.abs(number);
  };
  if (scale.binary && !short(value / pick(scale.multiples, value)[0])) {
    const [factor, unit] = pick(DECIMAL, value);
    if (short(value / factor)) return `${numberText(value / factor, digits)} ${unit}`;
  }
  return valueText(value, units, digits);
}

// A large number, in groups of three digits.
function grouped(number) {
  return number.toLocaleString("en");
}

function percentText(value, digits = 1) {
  return Number.isNaN(value) ? "none" : `${(100 * value).toFixed(digits)} %`;
}

// A band in whole percents, rounded outwards, but for what numbers are rounded to in a page.
function bandText(low, high) {
  const [below, above] = [low, high].map((end) => Math.ceil(Math.abs(100 * end) - 1e-4));
  if (below !== above) return Number.isNaN(below + above) ? " (band not known)" : ` (-${below}/+${above} %)`;
  return ` (±${above} %)`;
}

// Every multiple in which a unit may be shown or given.
function multiplesOf(units) {
  const scale = scaleOf(units);
  return scale.binary ? [...scale.multiples, ...DECIMAL.slice(1)] : scale.multiples;
}

// Reads a number with or without a unit or % ("70 GB", "12 ms", "80%"); NaN where it is none.
function readNumber(text, units) {
  const match = /^\s*([-+]?[\d.,]*\d\.?(?:e[-+]?\d+)?)\s*(\S.*)?$/i.exec(text);
  if (!match) return NaN;
  const value = Number(match[1].replaceAll(",", ""));
  const unit = (match[2] || "").trim();
  if (!unit) return value;
  if (unit === "%") return units === "1" ? value / 100 : NaN;
  const named = (multiple) => multiple[1] === unit || multiple[1].replace("µ", "u") === unit;
  const multiple = [...multiplesOf(units), ...(units === "s" ? LONG : [])].find(named);
  return multiple ? value * multiple[0] : NaN;
}

let RULER = null;
let FONT = "";

// The width of a text in pixels, about right where there is no browser.
function textWidth(text, size = 12) {
  if (typeof document === "undefined") return 0.58 * size * text.length;
  if (!RULER) {
    RULER = document.createElement("canvas").getContext("2d");
    FONT = getComputedStyle(document.body).fontFamily;
  }
  RULER.font = `${size}px ${FONT}`;
  return RULER.measureText(text).width;
}

// Axes: { low, high, log, label, ticks: [{ value, text }], share(value), value(share) }.

// asked: { values, units, label, log (true, false, or null: as the values suggest), zero, percent,
// multiple (of `multiplesOf`), exact (values that have ticks of their own), ends (no others) }
function axisOf(asked, pixels, upright = false) {
  let [low, high] = ends(asked.values);
  let log = asked.log;
  if (log === null || log === undefined) log = low > 0 && high / low >= 16;
  log = log && high > 0;
  if (asked.ends) {
    [low, high] = asked.ends;
  } else if (log) {
    if (low <= 0) low = ends(asked.values.filter((value) => value > 0))[0];
    const pad = Math.max(high / low, 1.5) ** 0.04;
    [low, high] = [low / pad, high * pad];
  } else if (low >= 0 && asked.zero !== false) {
    [low, high] = [0, high * 1.06 || 1];
  } else {
    const pad = 0.06 * (high - low || Math.abs(high) || 1);
    [low, high] = [low - pad, high + pad];
  }
  const axis = { low, high, log, band: false };
  const turn = log ? Math.log : (value) => value;
  const [start, end] = [turn(low), turn(high)];
  axis.share = (value) => (turn(value) - start) / (end - start);
  axis.value = (share) => (log ? Math.exp : (value) => value)(start + share * (end - start));
  Object.assign(axis, ticksOf(axis, asked, pixels, upright));
  return axis;
}

function ends(values) {
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) {
    if (value < low && value !== -Infinity) low = value;
    if (value > high && value !== Infinity) high = value;
  }
  return low > high ? [1, 10] : [low, high];
}

function ticksOf(axis, asked, pixels, upright) {
  const units = asked.units || "1";
  const multiples = asked.multiple ? [asked.multiple] : scaleOf(units).multiples;
  const room = Math.max(2, Math.floor(pixels / (upright ? 44 : 74)));
  // One multiple for the whole axis where it spans less than three thousand.
  const multiple = asked.multiple || pick(multiples, axis.high / 1.06);
  const several = !asked.multiple && axis.log && axis.high / axis.low > 3000;
  let values = asked.exact;
  if (!values || values.length > 12) {
    values = axis.log ? logTicks(axis, units, room) : linearTicks(axis, multiple[0], room);
  }
  const text = (value) => {
    if (asked.percent) return `${numberText(100 * value, 4)} %`;
    if (several) return givenText(value, units);
    return numberText(value / multiple[0], 4);
  };
  const ticks = thinned(values.map((value) => ({ value, text: text(value) })), axis, pixels, upright);
  const unit = asked.percent || several ? "" : multiple[1];
  return { ticks, label: unit ? `${asked.label}, ${unit}` : asked.label };
}

function linearTicks(axis, factor, room) {
  const span = (axis.high - axis.low) / factor;
  const rough = span / room;
  const size = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((round) => round * size).find((round) => round >= rough * 0.999);
  const first = Math.ceil(axis.low / factor / step - 1e-9);
  const last = Math.floor(axis.high / factor / step + 1e-9);
  return Array.from({ length: last - first + 1 }, (_, n) => {
    return Number(((first + n) * step).toPrecision(12)) * factor;
  });
}

function logTicks(axis, units, room) {
  const base = scaleOf(units).binary ? 2 : 10;
  const first = Math.ceil(Math.log(axis.low) / Math.log(base) - 1e-9);
  const last = Math.floor(Math.log(axis.high) / Math.log(base) + 1e-9);
  const powers = last - first + 1;
  if (base === 10 && powers < room) {
    const fine = powers * 3 <= room + 1 ? [1, 2, 5] : [1, 3];
    const marks = [];
    for (let n = first - 1; n <= last; n += 1) marks.push(...fine.map((mantissa) => mantissa * 10 ** n));
    const inside = marks.filter((mark) => mark >= axis.low && mark <= axis.high);
    if (inside.length >= 3) return inside;
    return linearTicks(axis, pick(scaleOf(units).multiples, axis.high)[0], room);
  }
  const step = Math.max(1, Math.ceil(powers / room));
  // Powers of 1024 are among the ticks of bytes.
  const start = base === 2 && step > 1 ? Math.ceil(first / step) * step : first;
  const count = Math.floor((last - start) / step) + 1;
  return Array.from({ length: Math.max(count, 0) }, (_, n) => base ** (start + n * step));
}

// Ticks without those that would touch one before.
function thinned(ticks, axis, pixels, upright) {
  const kept = [];
  let free = -Infinity;
  for (const tick of ticks) {
    const at = axis.share(tick.value) * pixels;
    const half = upright ? 9 : textWidth(tick.text) / 2 + 6;
    if (at < -0.5 || at > pixels + 0.5 || at - half < free) continue;
    kept.push(tick);
    free = at + half;
  }
  return kept;
}

// An axis of names: a band for each.
function bandAxis(texts, label, pixels, upright = false) {
  const count = texts.length;
  const axis = { low: -0.5, high: count - 0.5, log: false, band: true, label };
  axis.share = (index) => (index + 0.5) / count;
  axis.value = (share) => share * count - 0.5;
  const most = upright ? 150 : Math.max(40, pixels / count - 8);
  const ticks = texts.map((text, value) => ({ value, text: cut(text, most), whole: text }));
  axis.ticks = thinned(ticks, axis, pixels, upright);
  return axis;
}

// A text that is no wider than some pixels.
function cut(text, pixels, size = 12) {
  if (textWidth(text, size) <= pixels) return text;
  let kept = text;
  while (kept.length > 1 && textWidth(`${kept}…`, size) > pixels) kept = kept.slice(0, -1);
  return `${kept.trimEnd()}…`;
}

function capital(text) {
  return text.slice(0, 1).toUpperCase() + text.slice(1);
}
