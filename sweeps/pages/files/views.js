// The four views of a stored sweep, drawn from its arrays; limits, and what the sweep is.

function figure(page) {
  const draws = { points: viewPoints, lines: viewLines, map: viewMap, bars: viewBars };
  region("figure").classList.remove("panels");
  draws[page.state.view](page, region("figure"));
}

function xOfPoints(page, main = page.asked.main) {
  const { state, numbers } = page;
  if (numbers.includes(state.x)) return state.x;
  return numbers.find((name) => name !== main) || numbers[0];
}

function axisAsked(array, values, log, unit) {
  const multiple = unit ? multiplesOf(array.units).find((one) => one[1] === unit) : undefined;
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
  const limit = limitOf(page, across).map((one) => ({ ...one, upright: true }));
  const ask = axisAsked(across, [...xEnds, ...limit.map((one) => one.value)], state.lx, "");
  const yAsk = axisAsked(array, yEnds, state.ly, state.unit);
  if (yAsk.log === null) {
    const [low, high] = yEnds;
    yAsk.log = low > 0 && high >= 4 * low;
    yAsk.zero = low <= 0;
  }
  const front = frontOf(xs, ys, kept, more);
  for (let n = 0; n < xs.length; n += 1) if (Number.isNaN(xs[n])) kept[n] = 0;
  const order = page.best.cells.slice(0, 5).map((one) => indexOf(one, all, sweep.sizes));
  const frame = drawPoints(host, { x: ask, y: yAsk, xs, ys, colour, order, front, limits: limit });
  const items = along ? known.map((_, n) => ({ label: `${alongTitle(sweep, along.name)} ${entryText(along, n)}`, colour: lineColour(n), n }))
    .filter(({ n }) => colour.some((one, place) => one === n && !Number.isNaN(xs[place] + ys[place]))) : [];
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
    at: (place) => spot(order[place] ?? page.near),
    show: (place) => pointed(page, place < 0 ? null : cell(order[place] ?? page.near)),
    choose: (place) => choose(page, cell(order[place] ?? page.near)),
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
  const relating = [x, by].some((one) => one && state.rel[one.dim] !== undefined);
  const limit = relating ? [] : limitOf(page, array);
  const other = sweep.arrays[state.also];
  const panels = panelsOf(page).map(({ asked, title }) => {
    const found = foundAlong(page, asked);
    const values = relative(page, found);
    const row = (n) => [...values.slice(n * found.across, (n + 1) * found.across)];
    const series = [...Array(found.rows).keys()].map((n) => ({
      label: by ? entryText(by, n).replaceAll("_", " ") : "", colour: n,
      points: row(n).map((value, place) => [at(place), value]),
    })).filter((one) => one.points.some(([, y]) => Number.isFinite(y)));
    const plain = !relating && !other && x.values && isChosen(page, by) && series.length > 1;
    const changes = plain ? crossovers(x.values, series.map((one) => one.points.map(([, y]) => y)), page.asked.more, x.whole) : [];
    if (other && !relating) series.push(...comparedWith(page, found, other, at, asked.cell));
    const marks = changes.map((one) => ({ ...one, label: valueText(one.x, x.units, 3) }));
    return { asked, title, found, values, series, marks };
  });
  const every = panels.flatMap(({ series }) => series.flatMap((one) => one.points.map(([, y]) => y))).filter(Number.isFinite);
  let ask = axisAsked(array, [...every, ...limit.map((one) => one.value)], state.ly, state.unit);
  if (relating) {
    const from = Object.entries(state.rel).map(([dim, place]) => nameOf(sweep, { [dim]: place }, [dim])).join(" · ");
    ask = { values: every, units: "1", percent: true, log: state.ly === "log", zero: false,
      label: `${array.label}, of that at ${from}` };
  }
  const cursor = x.places[page.chosen[x.dim]];
  const boxes = boxesOf(host, panels);
  panels.forEach(({ asked, found, values, series, marks }, n) => {
    const frame = drawLines(boxes[n], { x: alongAsked(x, state.lx), y: ask, series, cursor: at(cursor), limits: limit, marks,
      more: page.asked.more, bare: panels.length > 1 });
    const place = (k) => (found.from[k] < 0 ? null : cellOf(found.from[k], found.dims, asked.cell, sweep.sizes));
    const spot = (k) => (Number.isFinite(values[k]) ? [frame.px(at(k % found.across)), frame.py(values[k])] : null);
    const order = [...found.values.keys()].filter((k) => Number.isFinite(found.values[k]));
    interact(frame, marksOf(page, found.values.length, spot, place, -1, order));
  });
  if (panels.length > 1) {
    const shown = new Map(panels.flatMap(({ series }) => series.map((one) => [one.label, one.colour])));
    const items = [...shown].map(([label, colour]) => ({ label, colour: lineColour(colour), line: true }));
    if (items.length > 1) host.append(legend(items));
  }
  page.shown = { cells: () => cellsAlong(page), names: [array.name, ...(other ? [other.name] : [])] };
}

// A box for each panel, with its title; of one alone the host itself.
function boxesOf(host, panels) {
  host.classList.toggle("panels", panels.length > 1);
  if (panels.length === 1) return [host];
  const boxes = panels.map(({ title }) => [make("h3", {}, title), make("div", { role: "group", "aria-label": title })]);
  host.onkeydown = null;
  host.removeAttribute("tabindex");
  host.replaceChildren(...boxes.map((both) => make("div", {}, ...both)));
  return boxes.map(([, box]) => box);
}

// The cells that lines or a map show.
function cellsAlong(page) {
  return panelsOf(page).flatMap(({ asked }) => {
    const found = foundAlong(page, asked);
    return [...found.from].filter((n) => n >= 0).map((n) => cellOf(n, found.dims, asked.cell, page.sweep.sizes));
  });
}

// Values by those at the entries that the state relates them to.
function relative(page, { values, across }) {
  const { x, by } = page.asked;
  const { rel } = page.state;
  const known = [x, by].filter((one) => one && rel[one.dim] !== undefined);
  if (!known.length) return values;
  return values.map((value, n) => {
    const column = rel[x.dim] === undefined ? n % across : x.places[rel[x.dim]];
    const row = !by || rel[by.dim] === undefined ? Math.floor(n / across) : by.places[rel[by.dim]];
    return value / values[row * across + column];
  });
}

// Another quantity of the same cells, as dots: what was measured beside what is predicted.
function comparedWith(page, found, other, at, cell) {
  const { sweep } = page;
  const points = [];
  found.from.forEach((from, n) => {
    if (from < 0) return;
    const value = numberAt(other, cellOf(from, found.dims, cell, sweep.sizes));
    if (Number.isFinite(value)) points.push([at(n % found.across), value]);
  });
  return [{ label: other.title, points, dots: true, colour: 3 }];
}

function viewMap(page, host) {
  const { sweep, state } = page;
  const { array, x, by } = page.asked;
  const which = sweep.arrays[state.c];
  const panels = panelsOf(page).map(({ asked, title }) => {
    const found = foundAlong(page, asked);
    const place = (n) => (found.from[n] < 0 ? null : cellOf(found.from[n], found.dims, asked.cell, sweep.sizes));
    const codes = [...found.values].map((one, n) => (Number.isNaN(one) ? NaN : which ? numberAt(which, place(n)) : one));
    return { title, found, place, codes };
  });
  const every = panels.flatMap(({ codes }) => codes);
  const names = which ? which.texts || null : array.texts || null;
  const order = [...new Set(every.filter((one) => !Number.isNaN(one)))].sort((a, b) => a - b);
  const categories = names || which;
  const finite = every.filter(Number.isFinite);
  const [low, high] = ends(finite);
  const log = low > 0 && high / low >= 16;
  const share = (value) => (log ? Math.log(value / low) / Math.log(high / low || 2) : (value - low) / (high - low || 1));
  const paint = (value) => {
    if (Number.isNaN(value)) return null;
    return categories ? areaColour(order.indexOf(value)) : shade(share(value));
  };
  // Values that aren't in order stand as names.
  const asBands = (one, scale) => {
    const sorted = !one.values || one.values.every((value, n) => !n || value > one.values[n - 1]);
    return alongAsked(sorted ? one : { ...one, texts: one.values.map((_, n) => entryText(one, n)) }, scale);
  };
  const word = (value) => (names ? names[value].replaceAll("_", " ") : givenText(value, which.units));
  const boxes = boxesOf(host, panels);
  panels.forEach(({ found, place, codes }, k) => {
    const here = !page.asked.panel || page.chosen[page.asked.panel.name] === k;
    const frame = drawMap(boxes[k], {
      x: asBands(x, state.lx), y: asBands(by, state.ly),
      colour: (n, m) => paint(codes[m * found.across + n]),
      kind: categories ? (n, m) => codes[m * found.across + n] : null, word,
      cursor: here ? [x.places[page.chosen[x.dim]], by.places[page.chosen[by.dim]]] : null,
    });
    const { across, upward } = frame.cells;
    const middle = ([a, b]) => (a + b) / 2;
    const spot = (n) => [middle(across[n % found.across]), middle(upward[Math.floor(n / found.across)])];
    const inside = ([a, b], at) => at >= Math.min(a, b) && at < Math.max(a, b);
    const marks = marksOf(page, codes.length, spot, place, -1, [...codes.keys()]);
    marks.find = (px, py) => {
      const n = across.findIndex((one) => inside(one, px));
      const m = upward.findIndex((one) => inside(one, py));
      return n < 0 || m < 0 ? -1 : m * found.across + n;
    };
    interact(frame, marks);
  });
  if (categories) {
    host.append(legend(order.map((value, n) => ({ label: word(value), colour: areaColour(n) }))));
  } else if (finite.length) {
    host.append(shadeBar(`${array.label}: ${shownText(array, low)}`, shownText(array, high)));
  }
  const missing = every.length - finite.length;
  if (missing) host.append(note(`${grouped(missing)} of ${grouped(every.length)} have no value: point at one to see why`));
  page.shown = { cells: () => cellsAlong(page), names: [array.name, ...(which && which.role === "quantity" ? [which.name] : [])] };
}

function viewBars(page, host) {
  const { sweep, state, best } = page;
  const { group, all, cell, more, limits, array } = page.asked;
  const kept = keeping(sweep, limits, all, cell);
  const places = bestPlaces(gather(array, all, cell, sweep.sizes), kept, more, BARS);
  const cells = places.map((n) => cellOf(n, all, cell, sweep.sizes));
  const plain = cells.map((one) => group.parts.map((part) => partAt(sweep, part, one)));
  const each = plain.map(folded);
  const sums = group.parts.map((part, n) => ({ ...part, n, sum: each.reduce((sum, one) => sum + one[n], 0) }));
  const largest = [...sums].sort((one, other) => other.sum - one.sum).filter((one) => one.sum > 0);
  const kind = largest.length > PARTS ? largest.slice(0, PARTS - 1) : largest;
  const own = sums.filter((one) => kind.includes(one));
  const rest = largest.filter((one) => !kind.includes(one));
  const parts = own.map((one) => ({ label: one.label, colour: areaColour(one.colour), from: [one] }));
  if (rest.length) parts.push({ label: `the rest: ${rest.map((one) => one.label).join(", ")}`, colour: "#9a9a9a", from: rest });
  const first = partOf(sweep, group);
  const total = sweep.arrays[group.total] || first;
  const multiple = multiplesOf(first.units).find((one) => one[1] === state.unit);
  const rows = cells.map((one, row) => {
    const values = parts.map((part) => part.from.reduce((sum, { n }) => sum + each[row][n], 0));
    const whole = sweep.arrays[group.total] ? numberAt(total, one) : values.reduce((sum, each) => sum + each, 0);
    return { name: nameOf(sweep, one, all) || "this cell", values, text: shownText(total, whole, 3) };
  });
  if (!rows.length) {
    host.replaceChildren(note(why(page)));
    page.shown = null;
    return;
  }
  const limit = limitOf(page, total);
  const chosen = cells.findIndex((one) => textOfCell(sweep, one) === textOfCell(sweep, page.chosen));
  const frame = drawBars(host, { rows, parts, units: first.units, label: group.label, multiple, limits: limit, chosen });
  host.append(belowText(plain, group.parts.map((part) => part.label)));
  const marks = marksOf(page, rows.length, () => null, (n) => cells[n], chosen, [...rows.keys()]);
  marks.find = (_, y) => frame.rows.findIndex(([from, to]) => y >= from && y < to);
  interact(frame, marks);
  page.shown = { cells: () => cells, names: group.parts.flatMap((one) => one.variables).filter((name) => sweep.arrays[name]) };
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
  const columns = sweep.data.arrays.filter((one) => one.role === "column").map((one) => one.name);
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

// A large number, in groups of three digits.
function grouped(number) {
  return number.toLocaleString("en");
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
  const rows = data.constants.flatMap((one) => [make("dt", {}, capital(one.label)),
    make("dd", {}, one.text, " ", make("small", {}, one.origin))]);
  const lines = [data.summary ? make("p", {}, data.summary) : null,
    make("p", { className: "quiet" }, [data.title, data.history, data.source].filter(Boolean).join(" · "),
      `. Numbers are kept to ${data.digits} digits; the address holds this view.`)];
  if (rows.length) {
    lines.push(make("details", {}, make("summary", {}, `What is the same everywhere: ${data.constants.length} values and their origins`),
      make("dl", {}, ...rows)));
  }
  fill("about", ...lines.filter(Boolean));
}
