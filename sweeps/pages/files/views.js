// The four views of a stored sweep, drawn from its arrays; limits, and what the sweep is.

function figure(page) {
  const draws = { points: viewPoints, lines: viewLines, map: viewMap, bars: viewBars };
  draws[page.state.view](page, region("figure"));
}

function xOfPoints(page, main = page.asked.main) {
  const { state, numbers } = page;
  if (numbers.includes(state.x)) return state.x;
  return numbers.find((name) => name !== main) || numbers[0];
}

function axisAsked(array, values, log, unit) {
  const multiple = unit ? multiplesOf(array.units).find((multiple) => multiple[1] === unit) : undefined;
  return { values, units: array.units, label: array.label, percent: array.percent, multiple,
    log: log ? log === "log" : null };
}

// What an axis along a dimension or a column asks for.
function alongAsked({ texts, values, units, label }, scale) {
  return texts ? { texts, label } : { values, units, label, exact: values, log: scale ? scale === "log" : null };
}

// A limit of a quantity, such as a memory's capacity, where it is the same for all that is shown.
function limitOf(page, array) {
  const constant = page.sweep.constants[array.limit];
  if (!constant || constant.value === null) return [];
  return [{ value: constant.value, label: `${constant.label.replace(/^memory: /, "")}: ${constant.text}` }];
}

// Tells what is under the pointer, or again what is chosen.
function pointed(page, cell) {
  if (cell) showCell(page, cell, "Here");
  else showCell(page, page.chosen, page.state.cell ? "Chosen" : "Best shown");
}

function viewPoints(page, host) {
  const { sweep, state } = page;
  const { array, all, cell, more, limits } = page.asked;
  const across = sweep.arrays[xOfPoints(page)];
  const xs = gather(across, all, cell, sweep.sizes);
  const ys = gather(array, all, cell, sweep.sizes);
  const kept = keeping(sweep, limits, all, cell);
  const along = state.by && fewOf(sweep, state.by) ? alongOf(sweep, state.by) : null;
  const codes = along ? gather(sweep.arrays[state.by], all, cell, sweep.sizes) : null;
  const colour = new Int8Array(xs.length);
  const known = along && (along.values || along.texts.map((text) => sweep.arrays[state.by].texts.indexOf(text)));
  for (let n = 0; n < xs.length; n += 1) colour[n] = kept[n] ? (codes ? known.indexOf(codes[n]) : 0) : -1;
  const there = [...xs.keys()].filter((n) => !Number.isNaN(xs[n]) && !Number.isNaN(ys[n]));
  const [xEnds, yEnds] = [xs, ys].map((values) => ends(there.map((n) => values[n])));
  const limit = limitOf(page, across).map((limit) => ({ ...limit, upright: true }));
  const ask = axisAsked(across, [...xEnds, ...limit.map((limit) => limit.value)], state.lx, "");
  const yAsk = axisAsked(array, yEnds, state.ly, state.unit);
  if (yAsk.log === null) {
    const [low, high] = yEnds;
    yAsk.log = low > 0 && high >= 4 * low;
    yAsk.zero = low <= 0;
  }
  const front = frontOf(xs, ys, kept, more);
  for (let n = 0; n < xs.length; n += 1) if (Number.isNaN(xs[n])) kept[n] = 0;
  const order = page.best.cells.slice(0, 5).map((cell) => indexOf(cell, all, sweep.sizes));
  const frame = drawPoints(host, { x: ask, y: yAsk, xs, ys, colour, order, front, limits: limit });
  const items = along ? known.map((_, n) => ({ label: `${alongTitle(sweep, along.name)} ${entryText(along, n)}`, colour: lineColour(n), n }))
    .filter(({ n }) => colour.some((code, point) => code === n && !Number.isNaN(xs[point] + ys[point]))) : [];
  items.push({ label: "Pareto front", colour: isDark() ? "#ff8a5c" : "#C23B00", line: true });
  if (colour.includes(-1)) items.push({ label: "outside your limits", colour: "#b0b0b0" });
  host.append(legend(items));
  const missing = xs.length - there.length;
  if (missing) host.append(note(missingText(page, missing, xs.length, all, cell, ys)));
  const spot = (n) => (Number.isFinite(xs[n]) && Number.isFinite(ys[n]) ? [frame.px(xs[n]), frame.py(ys[n])] : null);
  const chosen = indexOf(page.chosen, all, sweep.sizes);
  interact(frame, marksOf(page, xs.length, spot, (n) => cellOf(n, all, cell, sweep.sizes), chosen, bestPlaces(ys, kept, more, 200)));
  page.shown = { cells: () => [...xs.keys()].map((n) => cellOf(n, all, cell, sweep.sizes)), names: [array.name, across.name] };
}

// How many cells have no value, and the most frequent reasons.
function missingText(page, missing, total, dims, cell, values) {
  const { sweep } = page;
  const counts = new Map();
  const status = sweep.arrays[page.asked.array.status];
  if (status) {
    const codes = gather(status, dims, cell, sweep.sizes);
    codes.forEach((code, n) => {
      if (Number.isNaN(values[n])) counts.set(code, (counts.get(code) || 0) + 1);
    });
  }
  const reasons = [...counts].filter(([code]) => status.texts[code]).sort((a, b) => b[1] - a[1]).slice(0, 3)
    .map(([code, count]) => `${status.texts[code]} (${grouped(count)})`);
  const many = `${grouped(missing)} of ${grouped(total)} have no value`;
  return reasons.length ? `${many}: ${reasons.join(", ")}` : many;
}

// The place of a cell among those along some dimensions.
function indexOf(cell, dims, sizes) {
  return dims.reduce((at, dim) => at * sizes[dim] + cell[dim], 0);
}

// Marks as `interact` takes them; the arrow keys go through `order`.
function marksOf(page, count, spot, cell, now, order) {
  return {
    count: order.length,
    now: order.indexOf(now),
    find: (x, y) => {
      const n = nearest(count, spot, x, y);
      page.near = n;
      return n < 0 ? -1 : order.includes(n) ? order.indexOf(n) : order.length;
    },
    at: (mark) => spot(order[mark] ?? page.near),
    show: (mark) => pointed(page, mark < 0 ? null : cell(order[mark] ?? page.near)),
    choose: (mark) => choose(page, cell(order[mark] ?? page.near)),
  };
}

function viewLines(page, host) {
  const { sweep, state } = page;
  const { array, x, by, cell } = page.asked;
  if (array.texts) {
    host.replaceChildren(note("Names have no lines: see the map."));
    page.shown = null;
    return;
  }
  const at = (n) => (x.values ? x.values[n] : n);
  const limit = limitOf(page, array);
  const { from, dims, values, across, rows } = foundAlong(page);
  const series = [...Array(rows).keys()].map((row) => ({
    label: by ? entryText(by, row).replaceAll("_", " ") : "", colour: row,
    points: [...values.slice(row * across, (row + 1) * across)].map((value, n) => [at(n), value]),
  })).filter(({ points }) => points.some(([, y]) => Number.isFinite(y)));
  const shown = [...values].filter(Number.isFinite);
  const frame = drawLines(host, {
    x: alongAsked(x, state.lx), limits: limit, series, cursor: at(x.places[page.chosen[x.dim]]),
    y: axisAsked(array, [...shown, ...limit.map(({ value }) => value)], state.ly, state.unit),
  });
  const cellAt = (n) => (from[n] < 0 ? null : cellOf(from[n], dims, cell, sweep.sizes));
  const spot = (n) => (Number.isFinite(values[n]) ? [frame.px(at(n % across)), frame.py(values[n])] : null);
  const order = [...values.keys()].filter((n) => Number.isFinite(values[n]));
  interact(frame, marksOf(page, values.length, spot, cellAt, -1, order));
  page.shown = { cells: () => cellsAlong(page), names: [array.name] };
}

// The cells that lines or a map show.
function cellsAlong(page) {
  const { from, dims } = foundAlong(page);
  return [...from].filter((n) => n >= 0).map((n) => cellOf(n, dims, page.asked.cell, page.sweep.sizes));
}

function viewMap(page, host) {
  const { sweep, state } = page;
  const { array, x, by, cell } = page.asked;
  const which = sweep.arrays[state.c];
  const { from, dims, values, across: columns } = foundAlong(page);
  const cellAt = (n) => (from[n] < 0 ? null : cellOf(from[n], dims, cell, sweep.sizes));
  const codes = [...values].map((value, n) => (which && !Number.isNaN(value) ? numberAt(which, cellAt(n)) : value));
  const names = which ? which.texts || null : array.texts || null;
  const order = [...new Set(codes.filter((code) => !Number.isNaN(code)))].sort((a, b) => a - b);
  const categories = names || which;
  const finite = codes.filter(Number.isFinite);
  const [low, high] = ends(finite);
  const log = low > 0 && high / low >= 16;
  const share = (value) => (log ? Math.log(value / low) / Math.log(high / low || 2) : (value - low) / (high - low || 1));
  const paint = (value) => {
    if (Number.isNaN(value)) return null;
    return categories ? areaColour(order.indexOf(value)) : shade(share(value));
  };
  // Values that aren't in order stand as names.
  const asBands = (along, scale) => {
    const sorted = !along.values || along.values.every((value, n) => !n || value > along.values[n - 1]);
    return alongAsked(sorted ? along : { ...along, texts: along.values.map((_, n) => entryText(along, n)) }, scale);
  };
  const word = (value) => (names ? names[value].replaceAll("_", " ") : givenText(value, which.units));
  const frame = drawMap(host, {
    x: asBands(x, state.lx), y: asBands(by, state.ly),
    colour: (n, m) => paint(codes[m * columns + n]),
    kind: categories ? (n, m) => codes[m * columns + n] : null,
    cursor: [x.places[page.chosen[x.dim]], by.places[page.chosen[by.dim]]],
  });
  const { across, upward } = frame.cells;
  const middle = ([a, b]) => (a + b) / 2;
  const spot = (n) => [middle(across[n % columns]), middle(upward[Math.floor(n / columns)])];
  const inside = ([a, b], at) => at >= Math.min(a, b) && at < Math.max(a, b);
  const marks = marksOf(page, codes.length, spot, cellAt, -1, [...codes.keys()]);
  marks.find = (px, py) => {
    const n = across.findIndex((rim) => inside(rim, px));
    const m = upward.findIndex((rim) => inside(rim, py));
    return n < 0 || m < 0 ? -1 : m * columns + n;
  };
  interact(frame, marks);
  if (categories) {
    host.append(legend(order.map((value, n) => ({ label: word(value), colour: areaColour(n) }))));
  } else if (finite.length) {
    host.append(shadeBar(`${array.label}: ${shownText(array, low)}`, shownText(array, high)));
  }
  const missing = codes.length - finite.length;
  if (missing) host.append(note(`${grouped(missing)} of ${grouped(codes.length)} have no value: point at one to see why`));
  page.shown = { cells: () => cellsAlong(page), names: [array.name, ...(which && which.role === "quantity" ? [which.name] : [])] };
}

function viewBars(page, host) {
  const { sweep, state, best } = page;
  const { group, all, cell, more, limits, array } = page.asked;
  const kept = keeping(sweep, limits, all, cell);
  const places = bestPlaces(gather(array, all, cell, sweep.sizes), kept, more, BARS);
  const cells = places.map((n) => cellOf(n, all, cell, sweep.sizes));
  const plain = cells.map((cell) => group.parts.map((part) => partAt(sweep, part, cell)));
  const each = plain.map(folded);
  const sums = group.parts.map((part, n) => ({ ...part, n, sum: each.reduce((sum, values) => sum + values[n], 0) }));
  const largest = [...sums].sort((first, second) => second.sum - first.sum).filter((first) => first.sum > 0);
  const kind = largest.length > PARTS ? largest.slice(0, PARTS - 1) : largest;
  const single = sums.filter((part) => kind.includes(part));
  const rest = largest.filter((part) => !kind.includes(part));
  const parts = single.map((part) => ({ label: part.label, colour: areaColour(part.colour), from: [part] }));
  if (rest.length) parts.push({ label: `the rest: ${rest.map((part) => part.label).join(", ")}`, colour: "#9a9a9a", from: rest });
  const first = partOf(sweep, group);
  const total = sweep.arrays[group.total] || first;
  const multiple = multiplesOf(first.units).find((multiple) => multiple[1] === state.unit);
  const rows = cells.map((cell, row) => {
    const values = parts.map((part) => part.from.reduce((sum, { n }) => sum + each[row][n], 0));
    const whole = sweep.arrays[group.total] ? numberAt(total, cell) : values.reduce((sum, each) => sum + each, 0);
    return { name: nameOf(sweep, cell, all) || "this cell", values, text: shownText(total, whole, 3) };
  });
  if (!rows.length) {
    host.replaceChildren(note(why(page)));
    page.shown = null;
    return;
  }
  const limit = limitOf(page, total);
  const chosen = cells.findIndex((cell) => textOfCell(sweep, cell) === textOfCell(sweep, page.chosen));
  const frame = drawBars(host, { rows, parts, units: first.units, label: group.label, multiple, limits: limit, chosen });
  host.append(belowText(plain, group.parts.map((part) => part.label)));
  const marks = marksOf(page, rows.length, () => null, (n) => cells[n], chosen, [...rows.keys()]);
  marks.find = (_, y) => frame.rows.findIndex(([from, to]) => y >= from && y < to);
  interact(frame, marks);
  page.shown = { cells: () => cells, names: group.parts.flatMap((part) => part.variables).filter((name) => sweep.arrays[name]) };
}

function partAt(sweep, part, cell) {
  return part.variables.reduce((sum, name) => {
    const array = sweep.arrays[name];
    const value = array ? numberAt(array, cell) : sweep.constants[name].value;
    return sum + (value > 0 || value < 0 ? value : 0);
  }, 0);
}

// What is shown, as rows of a table: coordinates, then values.
function rowsShown(page) {
  const { sweep, shown } = page;
  if (!shown) return [];
  const columns = sweep.data.arrays.filter((array) => array.role === "column").map((array) => array.name);
  const names = [...columns, ...shown.names];
  const heads = names.map((name) => {
    const { units } = sweep.arrays[name];
    return units === "1" || sweep.arrays[name].texts ? name : `${name} [${units}]`;
  });
  const cells = shown.cells();
  const rows = cells.map((cell) => names.map((name) => {
    const array = sweep.arrays[name];
    const number = numberAt(array, cell);
    if (Number.isNaN(number)) return "";
    return array.texts ? array.texts[number] : Number(number.toPrecision(sweep.data.digits));
  }));
  return [heads, ...rows];
}

// Limits that the reader sets on any number.
function limitsOf(page) {
  const { sweep, state } = page;
  const limited = JSON.stringify([state.max, state.min]);
  if (page.limited === limited) return;
  page.limited = limited;
  const names = [...page.numbers, ...page.columns.filter((name) => !sweep.arrays[name].texts)];
  const list = [];
  for (const [side, words] of [["max", "at most"], ["min", "at least"]]) {
    for (const [name, value] of Object.entries(state[side])) {
      const array = sweep.arrays[name];
      const text = array.percent ? percentText(value) : givenText(value, array.units);
      list.push(button(`${array.title} ${words} ${text} ✕`, () => {
        const { [name]: gone, ...left } = state[side];
        state.set({ [side]: left, cell: "" });
      }));
    }
  }
  const chosen = { name: names.includes("peak_memory") ? "peak_memory" : names[0], side: "max", value: NaN };
  const add = () => {
    if (Number.isNaN(chosen.value)) return;
    state.set({ [chosen.side]: { ...state[chosen.side], [chosen.name]: chosen.value }, cell: "" });
  };
  const units = () => sweep.arrays[chosen.name].units;
  const box = make("span");
  const typed = () => {
    const array = sweep.arrays[chosen.name];
    const input = field(`such as ${shownText(array, numberAt(array, page.chosen))}`, units(), "", (value) => {
      chosen.value = value;
    });
    input.querySelector("input").onkeydown = (event) => {
      if (event.key !== "Enter") return;
      event.target.onchange();
      add();
    };
    box.replaceChildren(input);
  };
  typed();
  fill("limits", make("h2", {}, "Only cells with"), make("div", { className: "row" }, ...list),
    make("div", { className: "row" },
      choice("Number", names.map((name) => [name, capital(sweep.arrays[name].title)]), chosen.name, (name) => {
        chosen.name = name;
        typed();
      }),
      choice("is", [["max", "at most"], ["min", "at least"]], "max", (side) => {
        chosen.side = side;
      }), box, button("Set", add)));
}

// What the sweep is, where its numbers come from.
function about(page) {
  const { data } = page.sweep;
  const rows = data.constants.flatMap((constant) => [make("dt", {}, capital(constant.label)),
    make("dd", {}, constant.text, " ", make("small", {}, constant.origin))]);
  const lines = [data.summary ? make("p", {}, data.summary) : null,
    make("p", { className: "quiet" }, [data.title, data.history, data.source].filter(Boolean).join(" · "),
      `. Numbers are kept to ${data.digits} digits; the address holds this view.`)];
  if (rows.length) {
    lines.push(make("details", {}, make("summary", {}, `What is the same everywhere: ${data.constants.length} values and their origins`),
      make("dl", {}, ...rows)));
  }
  fill("about", ...lines.filter(Boolean));
}
