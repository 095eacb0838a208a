// A stored sweep in memory: packed arrays, each over its own dimensions, and what is asked of them.

const TYPES = { f4: Float32Array, f8: Float64Array, u1: Uint8Array, u2: Uint16Array, i4: Int32Array };

function openSweep(data, bytes) {
  const sizes = Object.fromEntries(data.dims.map((dim) => [dim.name, dim.size]));
  const arrays = {};
  let from = 0;
  for (const about of data.arrays) {
    const strides = {};
    let count = 1;
    for (const dim of [...about.dims].reverse()) {
      strides[dim] = count;
      count *= sizes[dim];
    }
    const values = restored(bytes, from, count, about.type);
    from += values.byteLength;
    const flat = about.texts && about.role !== "status" ? about.texts.indexOf("") : -1;
    arrays[about.name] = { ...about, strides, count, values, hole: flat };
  }
  const constants = Object.fromEntries(data.constants.map((constant) => [constant.name, constant]));
  return { data, dims: data.dims, sizes, arrays, constants };
}

// Bytes lie by their place in a number: the first of each, then the second.
function restored(bytes, from, count, type) {
  const values = new TYPES[type](count);
  const size = values.BYTES_PER_ELEMENT;
  const mixed = new Uint8Array(bytes, from, count * size);
  const plain = new Uint8Array(values.buffer);
  for (let byte = 0; byte < size; byte += 1) {
    const start = byte * count;
    for (let n = 0; n < count; n += 1) plain[n * size + byte] = mixed[start + n];
  }
  return values;
}

// What is told of a dimension.
function dimOf(sweep, name) {
  return sweep.dims.find((dim) => dim.name === name);
}

// A cell is the place along each dimension: { dim: place }.

function rawAt(array, cell) {
  let at = 0;
  for (const dim of array.dims) at += array.strides[dim] * cell[dim];
  return array.values[at];
}

// The number at a cell: of names their place among the names, NaN where there is none.
function numberAt(array, cell) {
  const raw = rawAt(array, cell);
  return raw === array.hole ? NaN : raw;
}

// An array's values along some dimensions, the last fastest; the others as the cell has them.
function gather(array, dims, cell, sizes) {
  const counts = dims.map((dim) => sizes[dim]);
  const steps = dims.map((dim) => array.strides[dim] || 0);
  const total = counts.reduce((all, count) => all * count, 1);
  let at = 0;
  for (const dim of array.dims) if (!dims.includes(dim)) at += array.strides[dim] * cell[dim];
  const same = at === 0 && total === array.count && dims.every((dim, n) => dim === array.dims[n]);
  if (same) return array.values;
  const gathered = new array.values.constructor(total);
  const position = counts.map(() => 0);
  for (let n = 0; n < total; n += 1) {
    gathered[n] = array.values[at];
    for (let axis = counts.length - 1; axis >= 0; axis -= 1) {
      position[axis] += 1;
      at += steps[axis];
      if (position[axis] < counts[axis]) break;
      at -= steps[axis] * counts[axis];
      position[axis] = 0;
    }
  }
  return gathered;
}

// The cell of the n-th of the values that `gather` gives.
function cellOf(n, dims, cell, sizes) {
  const moved = { ...cell };
  for (const dim of [...dims].reverse()) {
    moved[dim] = n % sizes[dim];
    n = Math.floor(n / sizes[dim]);
  }
  return moved;
}

// Which values keep the limits that the reader set: { max: { name: number }, min: .. }.
function keeping(sweep, limits, dims, cell) {
  const total = dims.reduce((all, dim) => all * sweep.sizes[dim], 1);
  const kept = new Uint8Array(total).fill(1);
  for (const [side, table] of Object.entries(limits)) {
    for (const [name, limit] of Object.entries(table)) {
      const array = sweep.arrays[name];
      if (!array) continue;
      const values = gather(array, dims, cell, sweep.sizes);
      // Single numbers of what is stored may round up to the limit itself.
      const slack = 1e-7 * Math.abs(limit);
      for (let n = 0; n < total; n += 1) {
        const within = side === "max" ? values[n] <= limit + slack : values[n] >= limit - slack;
        if (!within) kept[n] = 0;
      }
    }
  }
  return kept;
}

// The best places of some values, at most so many, the best first; of equals the first.
function bestPlaces(values, kept, more, most) {
  const best = [];
  for (let n = 0; n < values.length; n += 1) {
    const value = values[n];
    if (!kept[n] || Number.isNaN(value)) continue;
    const beats = (other) => (more ? value > values[other] : value < values[other]);
    if (best.length === most && !beats(best[most - 1])) continue;
    let at = best.length;
    while (at > 0 && beats(best[at - 1])) at -= 1;
    best.splice(at, 0, n);
    if (best.length > most) best.pop();
  }
  return best;
}

// The place of the simplest of the plans that a prediction can't tell from the fastest: what
// `sweeps plan` recommends; -1 where nothing is said of plans.
function simplestPlace(sweep, array, values, kept, dims, cell) {
  const { tie, kinds, node } = sweep.data.simple;
  const [best] = bestPlaces(values, kept, false, 1);
  if (!kinds || array.name !== "step_time" || best === undefined || !dims.every((dim) => dimOf(sweep, dim).plans)) return -1;
  const { peak_memory: memory, zero_stage: zero, tp } = sweep.arrays;
  const tied = [...values.keys()].filter((n) => kept[n] && values[n] <= values[best] * (1 + tie)).map((n) => {
    const plan = cellOf(n, dims, cell, sweep.sizes);
    const several = kinds.map((name) => sweep.arrays[name])
      .filter((kind) => (kind.texts ? kind.texts[rawAt(kind, plan)] !== "none" : rawAt(kind, plan) > 1));
    const crosses = node && tp && rawAt(tp, plan) > node ? 1 : 0;
    return [n, crosses, several.length, zero ? rawAt(zero, plan) : 0, rawAt(memory, plan)];
  });
  const before = (first, second) => first.map((value, n) => value - second[n]).slice(1).find((difference) => difference) || 0;
  return tied.sort(before)[0][0];
}

// The places that no other beats in both: less of x, and less (or more) of y.
function frontOf(xs, ys, kept, more) {
  const bins = 1024;
  const sign = more ? -1 : 1;
  const fine = (n) => kept[n] && Number.isFinite(xs[n]) && Number.isFinite(ys[n]);
  let [low, high] = [Infinity, -Infinity];
  for (let n = 0; n < xs.length; n += 1) {
    if (!fine(n)) continue;
    low = Math.min(low, xs[n]);
    high = Math.max(high, xs[n]);
  }
  const bin = (n) => Math.min(bins - 1, Math.floor(((xs[n] - low) / (high - low || 1)) * bins));
  const least = new Float64Array(bins + 1).fill(Infinity);
  for (let n = 0; n < xs.length; n += 1) {
    if (fine(n)) least[bin(n) + 1] = Math.min(least[bin(n) + 1], sign * ys[n]);
  }
  for (let n = 1; n <= bins; n += 1) least[n] = Math.min(least[n], least[n - 1]);
  const left = [];
  for (let n = 0; n < xs.length; n += 1) if (fine(n) && sign * ys[n] < least[bin(n)]) left.push(n);
  left.sort((a, b) => xs[a] - xs[b] || sign * (ys[a] - ys[b]));
  let best = Infinity;
  return left.filter((n) => {
    const better = sign * ys[n] < best;
    if (better) best = sign * ys[n];
    return better;
  });
}

// What one may go along: a dimension, or a column of one (all its rows of one value together).
// { name, dim, label, units, values or texts, places (of each entry of the dimension) }
function alongOf(sweep, name) {
  const array = sweep.arrays[name];
  if (!array) {
    const dim = dimOf(sweep, name);
    const entries = [...Array(dim.size).keys()];
    const texts = entries.map((index) => nameOf(sweep, { [name]: index }, [name]));
    return { name, dim: name, label: capital(dim.label), units: "1", texts, places: entries };
  }
  const dim = array.dims[0];
  const raw = [...array.values];
  const keyed = sweep.dims.some((about) => about.key === name);
  const kept = keyed ? raw : [...new Set(raw)].sort((a, b) => a - b);
  const places = keyed ? raw.map((_, n) => n) : raw.map((value) => kept.indexOf(value));
  const about = { name, dim, label: array.label, units: array.units, places };
  if (array.texts) return { ...about, texts: kept.map((code) => array.texts[code]) };
  return { ...about, values: kept, whole: array.whole };
}

// An entry of what one goes along, as a control or a legend says it.
function entryText(along, index) {
  return along.texts ? along.texts[index] : givenText(along.values[index], along.units);
}

// The best value over some dimensions, for each place along one or two others.
// { dims, values (place along `by` times places along `x` and place along `x`), from }
function bestAlong(sweep, { y, x, by, all, cell, more, limits }) {
  const array = sweep.arrays[y];
  const dims = [...new Set([x.dim, ...(by ? [by.dim] : []), ...all])];
  const gathered = gather(array, dims, cell, sweep.sizes);
  const kept = keeping(sweep, limits, dims, cell);
  const across = x.values ? x.values.length : x.texts.length;
  const rows = by ? (by.values || by.texts).length : 1;
  const values = new Float64Array(across * rows).fill(NaN);
  const from = new Int32Array(across * rows).fill(-1);
  const counts = dims.map((dim) => sweep.sizes[dim]);
  const stride = counts.map((_, n) => counts.slice(n + 1).reduce((all, count) => all * count, 1));
  const along = (dim, n) => Math.floor(n / stride[dims.indexOf(dim)]) % sweep.sizes[dim];
  for (let n = 0; n < gathered.length; n += 1) {
    const slot = x.places[along(x.dim, n)] + (by ? by.places[along(by.dim, n)] * across : 0);
    if (from[slot] < 0) from[slot] = n;
    if (!kept[n] || gathered[n] === array.hole || Number.isNaN(gathered[n])) continue;
    const old = values[slot];
    if (Number.isNaN(old) || (more ? gathered[n] > old : gathered[n] < old)) {
      values[slot] = gathered[n];
      from[slot] = n;
    }
  }
  return { dims, values, from, across, rows };
}

// What tells a cell from others along some dimensions: tp 4 · pp 2 · no recompute.
function nameOf(sweep, cell, dims) {
  const parts = [];
  const named = new Set();
  const known = sweep.data.naming.map((name) => sweep.arrays[name])
    .filter((array) => array && array.dims.every((dim) => dims.includes(dim)));
  const several = known.filter((array) => array.plan).length > 1;
  for (const array of known) {
    array.dims.forEach((dim) => named.add(dim));
    if (!(several && isWithout(array, cell))) parts.push(saidOf(array, cell));
  }
  for (const dim of dims) {
    if (!named.has(dim)) {
      const about = dimOf(sweep, dim);
      parts.push(about.key ? saidOf(sweep.arrays[about.key], cell) : `${about.label} #${cell[dim]}`);
    }
  }
  return parts.join(" · ");
}

// Whether a plan does without a choice: nothing is said of that.
function isWithout(array, cell) {
  if (array.without === null) return false;
  const raw = rawAt(array, cell);
  return array.texts ? array.texts[raw] === "none" : raw === array.without;
}

function saidOf(array, cell) {
  const raw = rawAt(array, cell);
  if (array.said) return array.said[raw];
  const value = givenText(raw, array.units);
  const said = array.phrase.replace("{}", value);
  return value === "1" ? said.replace("s a ", " a ").replace(/s$/, "") : said;
}

// A number of an array as text: with its unit, or its name.
function shownText(array, number, digits = 4) {
  if (Number.isNaN(number)) return "none";
  if (array.texts) return array.texts[number].replaceAll("_", " ");
  return array.percent ? percentText(number) : valueText(number, array.units, digits);
}

// Why a value doesn't exist at a cell.
function reasonAt(sweep, array, cell) {
  const status = sweep.arrays[array.status];
  const why = status ? status.texts[rawAt(status, cell)] : "";
  return why || "this value isn't defined here";
}
