// The page of a stored sweep: its questions, four views, a control for every dimension.

const VIEWS = { points: "Points", lines: "Lines", map: "Map", bars: "Parts" };
const LISTED = 8;
const BARS = 12;
const PARTS = 7;

function start(data, bytes) {
  const sweep = openSweep(data, bytes);
  const page = { sweep, held: region("held").textContent, shown: null, layout: "", open: {} };
  page.quantities = data.arrays.filter((array) => array.role === "quantity").map((array) => array.name);
  page.numbers = page.quantities.filter((name) => !sweep.arrays[name].texts);
  page.columns = data.arrays
    .filter((array) => array.role === "column" && array.dims.length === 1).map((array) => array.name);
  page.state = makeState(fieldsOf(page), () => draw(page));
  redrawn(() => draw(page));
  about(page);
  draw(page);
}

// What a page shows: { name: field } as `makeState` takes them.
function fieldsOf(page) {
  const { sweep, quantities, numbers, columns } = page;
  const first = firstState(page);
  const oneOf = (initial, known) => ({
    initial, read: (text) => (!known || known.includes(text) ? text : undefined),
    write: String,
  });
  const entries = (initial) => ({
    table: true, initial, write: (value, dim) => entryOf(sweep, dim, value),
    read: (text, dim) => placeOf(sweep, dim, text),
  });
  const number = { table: true, initial: {}, write: String,
    read: (text, name) => {
      const known = numbers.includes(name) || columns.includes(name);
      return known && Number.isFinite(Number(text)) ? Number(text) : undefined;
    } };
  const places = (text) => {
    const positions = text.split(".").map(Number);
    const fine = positions.length === sweep.dims.length
      && sweep.dims.every((dim, n) => Number.isInteger(positions[n]) && positions[n] >= 0 && positions[n] < dim.size);
    return fine ? positions.join(".") : undefined;
  };
  const cell = { initial: "", read: places, write: String };
  const axes = ["", ...columns, ...Object.keys(sweep.sizes)];
  return {
    fig: oneOf(first.fig, ["none", ...sweep.data.figures.map((each) => each.name)]),
    view: oneOf(first.view, viewsOf(page)),
    y: oneOf(first.y, quantities),
    x: oneOf(first.x, [...quantities, ...axes]),
    by: oneOf(first.by, axes),
    c: oneOf(first.c, ["", ...axes]),
    g: oneOf(first.g, sweep.data.groups.map((each) => each.name)),
    sort: oneOf(first.sort, ["", ...numbers]),
    at: entries(first.at),
    lx: oneOf("", ["", "log", "linear"]),
    ly: oneOf("", ["", "log", "linear"]),
    unit: oneOf("", null),
    best: oneOf("", ["", "less", "more"]),
    max: { ...number, initial: first.max },
    min: { ...number },
    cell, a: { ...cell }, b: { ...cell },
  };
}

function firstState(page) {
  const { sweep, numbers, quantities } = page;
  const at = Object.fromEntries(sweep.dims.map((dim) => {
    return [dim.name, dim.chosen ? "*" : dim.number && !dim.first ? Math.floor(dim.size / 2) : 0];
  }));
  const y = numbers.find((name) => sweep.arrays[name].dims.length) || numbers[0] || quantities[0];
  const usual = {
    fig: "none", view: "lines", y, x: axisName(page, "", sweep.arrays[y]), by: "", c: "", g: (sweep.data.groups[0] || {}).name || "", sort: "", at,
    max: sweep.data.most,
  };
  const [asked] = sweep.data.figures;
  return asked ? { ...usual, ...asked.state, fig: asked.name, at: { ...at, ...asked.state.at } } : usual;
}

function viewsOf({ sweep, numbers }) {
  const views = ["lines"];
  if (numbers.length > 1) views.unshift("points");
  if (sweep.dims.length > 1) views.push("map");
  if (sweep.data.groups.length) views.push("bars");
  return views;
}

// A dimension's entry as the address has it: its value, or # and its place.
function entryOf(sweep, dim, index) {
  if (index === "*") return "*";
  const about = dimOf(sweep, dim);
  if (!about.key) return `#${index}`;
  const array = sweep.arrays[about.key];
  return array.texts ? array.texts[array.values[index]] : String(array.values[index]);
}

function placeOf(sweep, dim, text) {
  const about = dimOf(sweep, dim);
  if (!about) return undefined;
  if (text === "*") return "*";
  return [...Array(about.size).keys()].find((n) => entryOf(sweep, dim, n) === text);
}

// What the reader limits.
const limitedBy = ({ max, min }) => [...Object.keys(max), ...Object.keys(min)];

// What the state asks for, resolved: what is spread out, what is held, what is better.
function resolved(page) {
  const { state, sweep } = page;
  const group = sweep.data.groups.find((group) => group.name === state.g);
  const bars = state.view === "bars" && group;
  let main = bars ? state.sort || group.total || partOf(sweep, group).name : state.y;
  if (state.view === "points" && sweep.arrays[main].texts) [main] = page.numbers;
  const array = sweep.arrays[main];
  const more = (state.best || array.better) === "more";
  const limits = { max: state.max, min: state.min };
  const line = state.view === "lines" || state.view === "map";
  const x = line ? alongOf(sweep, axisName(page, state.x, array)) : null;
  let by = line && state.by ? alongOf(sweep, state.by) : null;
  if (by && by.name === x.name) by = null;
  if (state.view === "map" && !by) {
    const other = sweep.dims.find((dim) => dim.name !== x.dim) || sweep.dims[0];
    by = alongOf(sweep, other.key || other.name);
  }
  const axes = [...new Set([x, by].filter(Boolean).map((along) => along.dim))];
  const named = Boolean(array.texts);
  // What nothing shown depends on isn't looked through.
  const shown = [main, ...limitedBy(state), state.c,
    ...(state.view === "points" ? [xOfPoints(page, main)] : []), ...(bars ? group.parts.flatMap((part) => part.variables) : [])];
  const matters = new Set(shown.flatMap((name) => (sweep.arrays[name] ? sweep.arrays[name].dims : [])));
  const all = Object.keys(sweep.sizes).filter((dim) => {
    return state.at[dim] === "*" && matters.has(dim) && !axes.includes(dim) && !named;
  });
  const cell = {};
  for (const dim of sweep.dims) {
    cell[dim.name] = state.at[dim.name] === "*" ? 0 : state.at[dim.name];
  }
  return { main, array, more, limits, x, by, axes, all, cell, group, matters };
}

function axisName(page, name, array) {
  const { sweep, columns } = page;
  if (columns.includes(name) || sweep.dims.some((dim) => dim.name === name)) return name;
  const varying = sweep.dims.filter((dim) => dim.size > 1 && array.dims.includes(dim.name)).sort((a, b) => b.size - a.size);
  const dim = varying.find((dim) => dim.number && !dim.chosen) || varying[0] || sweep.dims[0];
  return dim.key || dim.name;
}

// The best cells of what is asked: along all that is chosen, at the conditions that are set.
function bestCells(page, most) {
  const { sweep, state } = page;
  const { array, more, limits, axes, all, cell } = page.asked;
  const chosen = sweep.dims.filter((dim) => axes.includes(dim.name) && (dim.chosen || state.at[dim.name] === "*"));
  const dims = [...all, ...chosen.map((dim) => dim.name)];
  const ordered = Object.keys(sweep.sizes).filter((dim) => dims.includes(dim));
  const values = gather(array, ordered, cell, sweep.sizes);
  const kept = keeping(sweep, limits, ordered, cell);
  const simplest = more ? -1 : simplestPlace(sweep, array, values, kept, ordered, cell);
  const others = bestPlaces(values, kept, more, most).filter((n) => n !== simplest);
  const places = [...(simplest < 0 ? [] : [simplest]), ...others].slice(0, most);
  const count = values.reduce((sum, value) => sum + !Number.isNaN(value), 0);
  return { dims: ordered, total: values.length, count, recommended: simplest >= 0,
    cells: places.map((n) => cellOf(n, ordered, cell, sweep.sizes)) };
}

function cellFrom(sweep, text) {
  const places = text.split(".").map(Number);
  return Object.fromEntries(sweep.dims.map((dim, n) => [dim.name, places[n]]));
}

function textOfCell(sweep, cell) {
  return sweep.dims.map((dim) => cell[dim.name]).join(".");
}

// Draws the page anew.
function draw(page) {
  const { state, sweep } = page;
  page.asked = resolved(page);
  const best = bestCells(page, LISTED);
  page.best = best;
  const { cell } = page.asked;
  page.chosen = state.cell ? cellFrom(sweep, state.cell) : best.cells[0] || { ...cell };
  figure(page);
  head(page);
  questions(page);
  answer(page);
  controls(page);
  showCell(page, page.chosen, state.cell ? "Chosen" : "Best shown");
  listBest(page);
  compare(page);
  limitsOf(page);
}

function head(page) {
  const { state, sweep } = page;
  const { array, x, by, group } = page.asked;
  const asked = sweep.data.figures.find((figure) => figure.name === state.fig);
  let title = asked ? asked.title : "";
  if (!title && state.view === "bars") title = group.label;
  const over = (along) => lower(alongTitle(sweep, along.name));
  if (!title && state.view === "points") title = `${capital(array.title)} over ${sweep.arrays[xOfPoints(page)].title}`;
  if (!title) title = `${capital(array.title)} over ${over(x)}${by ? ` and ${over(by)}` : ""}`;
  region("title").textContent = title;
  document.title = title;
  const spread = [...page.asked.axes, ...page.asked.all];
  const held = sweep.dims.filter((dim) => !spread.includes(dim.name) && page.asked.matters.has(dim.name)).map((dim) => {
    return nameOf(sweep, page.asked.cell, [dim.name]);
  });
  region("held").textContent = [page.held, ...held].filter(Boolean).join(" · ");
}

function lower(text) {
  return /^[A-Z][a-z'-]*( |,|$)/.test(text) ? text.slice(0, 1).toLowerCase() + text.slice(1) : text;
}

// The questions that the sweep's figures ask: each leads to its view.
function questions(page) {
  const { state, sweep } = page;
  const others = sweep.data.figures.filter((figure) => figure.name !== state.fig);
  fill("questions", ...others.map((figure) => {
    const at = { ...firstState(page).at, ...state.at, ...figure.state.at };
    const usual = { c: "", sort: "", by: "", lx: "", ly: "", unit: "", best: "", cell: "" };
    return button(figure.title, () => state.set({ ...usual, ...figure.state, at, fig: figure.name }));
  }));
}

// The answer, in a sentence or two.
function answer(page) {
  const { sweep, state, best } = page;
  const { array, more, all, axes } = page.asked;
  const [first] = best.cells;
  const lines = [];
  if (array.texts) {
    lines.push(said(shares(page)));
  } else if (first && state.view === "bars") {
    lines.push(said(largestOf(page, first)));
  } else if (first) {
    const conditions = axes.filter((dim) => !best.dims.includes(dim));
    const at = conditions.length ? ` at ${nameOf(sweep, first, conditions)}` : "";
    const told = best.recommended ? "Recommended plan" : /^(least|greatest|best) /i.test(array.title) ? capital(array.title)
      : `${more ? "Greatest" : "Least"} ${array.title}`;
    const name = nameOf(sweep, first, best.dims);
    lines.push(said(`${told}${at}: `, make("strong", {}, shownText(array, numberAt(array, first))),
      bandAt(sweep, array, first), name ? ` (${name})` : ""));
  } else {
    lines.push(said(why(page)));
  }
  const besides = first ? foundAt(sweep, array, first) : [];
  if (first && !array.texts) {
    for (const name of [...(state.view === "bars" ? [array.name] : []), ...tellers(page)]) {
      const other = sweep.arrays[name];
      besides.push(`${other.title} ${shownText(other, numberAt(other, first))}${bandAt(sweep, other, first)}`);
    }
  }
  if (best.total > 1 && !array.texts) {
    const { tie } = sweep.data.simple;
    const which = best.recommended ? `the simplest of the plans within ${percentText(tie, 0)} of the least ${array.title},`
      : "the best";
    besides.push(`${which} of ${grouped(best.total)} cells${limitedBy(state).length ? " within your limits" : ""}`);
  }
  if (besides.length) lines.push(make("p", { className: "quiet" }, besides.join(" · ")));
  fill("answer", ...lines);
}

// How far a measurement may be from what is shown, where the file says it.
function bandAt(sweep, array, cell) {
  const ends = sweep.data.bands[array.name];
  return ends ? bandText(...ends.map((name) => numberAt(sweep.arrays[name], cell))) : "";
}

// What fills the best cell's total most.
function largestOf(page, cell) {
  const { sweep } = page;
  const { group, all, array, more } = page.asked;
  const each = folded(group.parts.map((part) => partAt(sweep, part, cell)));
  const parts = group.parts.map((part, n) => ({ label: part.label, value: each[n] }))
    .sort((first, second) => second.value - first.value);
  const total = parts.reduce((sum, part) => sum + part.value, 0);
  const words = parts.slice(0, 3).filter((part) => part.value > 0)
    .map((part) => `${part.label} ${percentText(part.value / total, 0)}`);
  const { units } = partOf(sweep, group);
  const whole = sweep.arrays[group.total];
  const name = nameOf(sweep, cell, all);
  const of = `of the ${valueText(whole ? numberAt(whole, cell) : total, units)} with the ${more ? "greatest" : "least"} ${array.title}`;
  return `${capital(words.join(", "))} ${of}${name ? ` (${name})` : ""}`;
}

// The first part of a group that varies.
function partOf(sweep, group) {
  return sweep.arrays[group.parts.flatMap((part) => part.variables).find((name) => sweep.arrays[name])];
}

// Why there is no best cell.
function why(page) {
  const { sweep, best } = page;
  const { array, cell } = page.asked;
  if (best.count) return "No cell keeps your limits: loosen one.";
  return `No value here: ${reasonAt(sweep, array, cell)}.`;
}

// Where a reduction's result was found: the plan, and what else it was sought along.
function foundAt(sweep, array, cell) {
  return Object.values(sweep.arrays).flatMap((companion) => {
    const [head, name] = [`${array.name}_`, companion.name.slice(array.name.length + 1)];
    if (!companion.name.startsWith(head) || companion.dims.join() !== array.dims.join()) return [];
    const number = numberAt(companion, cell);
    if (Number.isNaN(number)) return [];
    const rows = Object.values(sweep.arrays).filter((each) => each.plan && each.dims.join() === name && each.name !== name);
    return rows.length ? rows.filter((each) => !isWithout(each, { [name]: number })).map((each) => saidOf(each, { [name]: number }))
      : [`${name.replaceAll("_", " ")} ${shownText(companion, number)}`];
  });
}

// What is told of the best cell besides: the sweep's usual quantities.
function tellers(page) {
  const { sweep, state } = page;
  const wanted = [...limitedBy(state), ...(state.view === "points" ? [xOfPoints(page)] : []), ...sweep.data.told];
  const known = [...new Set(wanted)].filter((name) => name !== page.asked.main && page.numbers.includes(name));
  return known.slice(0, 4);
}

// The best values along the axes of lines or of a map.
function foundAlong(page) {
  const { array, x, by, all, cell, more, limits } = page.asked;
  return bestAlong(page.sweep, { y: array.name, x, by, all, cell, more, limits });
}

// Which names a map of names has, and how often.
function shares(page) {
  const { array } = page.asked;
  const counts = new Map();
  for (const value of foundAlong(page).values) {
    if (!Number.isNaN(value)) counts.set(value, (counts.get(value) || 0) + 1);
  }
  const total = [...counts.values()].reduce((sum, count) => sum + count, 0);
  const order = [...counts].sort((first, second) => second[1] - first[1]).slice(0, 3);
  const words = order.map(([name, count]) => `${shownText(array, name)} ${percentText(count / total, 0)}`);
  return `${array.label}: ${words.join(", ")} of ${grouped(total)} cells`;
}

// Controls are built anew where their kinds change, and else only put.
function controls(page) {
  const { state, sweep } = page;
  const layout = JSON.stringify([state.view, state.x, state.by, state.y, state.g, page.asked.axes, [...page.asked.matters]]);
  if (layout === page.layout) {
    page.puts.forEach((put) => put());
    return;
  }
  const focused = document.activeElement && document.activeElement.closest("[data-control]");
  const last = focused ? focused.dataset.control : "";
  page.layout = layout;
  page.puts = [];
  const made = [];
  const add = (name, control, now) => {
    control.dataset.control = name;
    page.puts.push(() => control.put(now()));
    made.push(control);
  };
  const change = (changes) => state.set({ fig: "none", cell: "", ...changes });
  const views = viewsOf(page);
  if (views.length > 1) {
    add("view", buttons("View", views.map((view) => [view, VIEWS[view]]), state.view,
      (view) => change({ view })), () => state.view);
  }
  const listed = (names) => names.map((name) => [name, capital(sweep.arrays[name] ? sweep.arrays[name].title : name)]);
  const axes = [...new Set([...sweep.dims.map((dim) => dim.key || dim.name), ...page.columns])]
    .map((name) => [name, alongTitle(sweep, name)]);
  const line = state.view === "lines" || state.view === "map";
  if (state.view === "bars") {
    add("g", choice("Parts of", sweep.data.groups.map((group) => [group.name, group.label]), state.g,
      (g) => change({ g, sort: "" })), () => state.g);
    add("sort", choice("Sorted by", [["", "their sum"], ...listed(page.numbers)], state.sort,
      (sort) => change({ sort })), () => state.sort);
  } else {
    const known = state.view === "points" ? page.numbers : page.quantities;
    const fits = (y) => page.asked.axes.every((dim) => sweep.arrays[y].dims.includes(dim));
    add("y", choice("Quantity", listed(known), page.asked.main, (y) => change({ y, unit: "", ...(line && !fits(y) ? { x: "", by: "" } : {}) })),
      () => page.asked.main);
  }
  if (state.view === "points") {
    add("x", choice("Across", listed(page.numbers), xOfPoints(page), (x) => change({ x })), () => xOfPoints(page));
    add("by", choice("Colour", [["", "one for all"], ...axes.filter(([name]) => fewOf(sweep, name))],
      state.by, (by) => change({ by })), () => state.by);
  } else if (line) {
    add("x", choice("Across", axes, page.asked.x.name, (x) => change({ x })), () => page.asked.x.name);
    add("by", choice(state.view === "lines" ? "A line for each" : "Upward",
      [...(state.view === "lines" ? [["", "none"]] : []), ...axes], page.asked.by ? page.asked.by.name : "",
      (by) => change({ by })), () => (page.asked.by ? page.asked.by.name : ""));
  }
  for (const dim of sweep.dims) add(`at.${dim.name}`, dimControl(page, dim), () => placeNow(page, dim));
  const count = made.length;
  if (state.view !== "bars") {
    const ways = [["", "Auto"], ["log", "Log"], ["linear", "Linear"]];
    add("ly", buttons(state.view === "map" ? "Upward" : "Upward scale", ways, state.ly, (ly) => state.set({ ly })), () => state.ly);
    add("lx", buttons("Across scale", ways, state.lx, (lx) => state.set({ lx })), () => state.lx);
  }
  const unit = sweep.arrays[page.asked.main].units;
  if (multiplesOf(unit).length > 1) {
    add("unit", choice("Unit", [["", "as it reads best"], ...multiplesOf(unit).map(([, text]) => [text, text])],
      state.unit, (text) => state.set({ unit: text })), () => state.unit);
  }
  add("best", buttons("Best is", [["less", "Least"], ["more", "Greatest"]], page.asked.more ? "more" : "less",
    (best) => state.set({ best, cell: "" })), () => (page.asked.more ? "more" : "less"));
  made.push(details(page.open, "scales", "Scales and units", ...made.splice(count)), make("div", { className: "row" },
    button("Table (CSV)", () => download(`${stem(sweep.data.file)}.csv`, csvOf(rowsShown(page)), "text/csv")),
    sweep.data.spec ? button("Spec", () => download(`${stem(sweep.data.file)}.toml`, sweep.data.spec, "text/plain")) : null));
  fill("controls", ...made);
  const again = last && region("controls").querySelector(`[data-control="${CSS.escape(last)}"]`);
  const target = again && (again.querySelector("input:checked") || again.querySelector("select, input"));
  if (target) target.focus();
}

function stem(name) {
  return name.replace(/\.[^.]*$/, "");
}

function alongTitle(sweep, name) {
  const dim = sweep.dims.find((dim) => (dim.key || dim.name) === name);
  return named(dim ? dim.label : sweep.arrays[name].word);
}

// A name with a capital, unless it is a degree's, such as tp.
function named(text) {
  return text.length > 3 ? capital(text) : text;
}

function fewOf(sweep, name) {
  const along = sweep.arrays[name] ? alongOf(sweep, name) : null;
  return along && (along.values || along.texts).length <= 7;
}

// The place of a dimension's control: of what is on an axis the chosen cell's.
function placeNow(page, dim) {
  const { state } = page;
  if (page.asked.axes.includes(dim.name)) return page.chosen[dim.name];
  return page.asked.array.texts ? page.asked.cell[dim.name] : state.at[dim.name];
}

function dimControl(page, dim) {
  const { state, sweep } = page;
  const along = alongOf(sweep, dim.key || dim.name);
  const texts = along.places.map((index) => entryText(along, index).replaceAll("_", " "));
  const set = (index) => state.set({ at: { ...state.at, [dim.name]: index }, cell: "" });
  const now = placeNow(page, dim);
  const onAxis = page.asked.axes.includes(dim.name);
  const label = onAxis ? `${named(dim.label)} (on an axis)`
    : `${named(dim.label)}${page.asked.matters.has(dim.name) ? "" : " (changes nothing here)"}`;
  const every = state.view === "points" || state.view === "bars" ? "all" : "best of all";
  const all = onAxis || page.asked.array.texts ? [] : [["*", every]];
  if (dim.size <= 6 && texts.every((text) => text.length <= 26)) {
    return buttons(label, [...all, ...texts.map((text, index) => [index, text])], now, set);
  }
  if (dim.number && !all.length) return slider(label, texts, now, set);
  if (dim.number) {
    const shifted = slider(label, [every, ...texts], now === "*" ? 0 : now + 1, (n) => set(n ? n - 1 : "*"));
    const { put } = shifted;
    shifted.put = (index) => put(index === "*" ? 0 : index + 1);
    return shifted;
  }
  const list = [...all, ...texts.map((text, index) => [String(index), text])];
  return choice(label, list, String(now), (text) => set(text === "*" ? "*" : Number(text)));
}

// A cell told whole: value, coordinates, why there is none, formula and source.
function showCell(page, cell, head) {
  const { sweep, state } = page;
  const { array } = page.asked;
  const number = numberAt(array, cell);
  const hole = Number.isNaN(number);
  const dims = Object.keys(sweep.sizes);
  const lines = [make("h2", {}, `${head}: ${array.title}`),
    make("p", { className: "value" }, hole ? `none: ${reasonAt(sweep, array, cell)}` : shownText(array, number)),
    make("p", {}, nameOf(sweep, cell, dims.filter((dim) => page.asked.matters.has(dim))))];
  if (!hole && !array.texts) {
    const [, unit] = scaleOf(array.units).multiples.find(([factor]) => factor === 1) || ["", array.units];
    lines.push(note(`${array.meaning}: ${numberText(number, sweep.data.digits)} ${unit}`.trim()));
  }
  const columns = sweep.data.arrays.filter((array) => array.role === "column").map((array) => array.name);
  const others = [...columns, ...page.quantities.filter((name) => name !== array.name)]
    .filter((name) => sweep.arrays[name].dims.every((dim) => page.asked.matters.has(dim)));
  const rows = others.map((name) => {
    return [make("dt", {}, capital(sweep.arrays[name].meaning || sweep.arrays[name].label)),
      make("dd", {}, shownText(sweep.arrays[name], numberAt(sweep.arrays[name], cell)))];
  });
  const { formula = "", comment } = array;
  if (formula || comment) {
    const list = make("dl", {});
    for (const [name, text] of putIn(sweep, formula, cell)) {
      list.append(make("dt", {}, name), make("dd", {}, text));
    }
    lines.push(details(page.open, "formula", formula ? "Formula and source" : "How it is found", make("p", {}, make("code", {}, formula)), list,
      note([array.references, comment].filter(Boolean).join(". "))));
  }
  if (rows.length) lines.push(details(page.open, "all", "Every coordinate and quantity of this cell", make("dl", {}, ...rows.flat())));
  const text = textOfCell(sweep, cell);
  lines.push(make("div", { className: "row" },
    button("Pin as A", () => state.set({ a: text })), button("Pin as B", () => state.set({ b: text }))));
  fill("cell", ...lines);
}

// The numbers put into a formula, of those that the sweep has.
function putIn(sweep, formula, cell) {
  const right = formula.slice(formula.indexOf("=") + 1);
  const names = [...new Set(right.match(/[A-Za-z_]\w*/g) || [])];
  return names.flatMap((name) => {
    const array = sweep.arrays[name];
    if (array) return [[name, shownText(array, numberAt(array, cell))]];
    const constant = sweep.constants[name];
    return constant ? [[name, constant.text]] : [];
  });
}

function listBest(page) {
  const { sweep, best } = page;
  const { array } = page.asked;
  if (array.texts || best.cells.length < 2) {
    fill("best");
    return;
  }
  const told = [array.name, ...tellers(page)];
  const rows = best.cells.map((cell, n) => [
    button(`${n + 1}. ${nameOf(sweep, cell, best.dims)}`, () => choose(page, cell)),
    ...told.map((name) => shownText(sweep.arrays[name], numberAt(sweep.arrays[name], cell))),
  ]);
  const heads = ["", ...told.map((name) => sweep.arrays[name].title)];
  fill("best", make("h2", {}, `The best of ${grouped(best.total)}`), table(heads, rows));
}

function choose(page, cell) {
  if (!cell) return;
  const { sweep, state } = page;
  const at = { ...state.at };
  for (const dim of page.asked.axes) at[dim] = cell[dim];
  state.set({ cell: textOfCell(sweep, cell), at });
}

// Two cells that the reader pinned, beside each other: what differs.
function compare(page) {
  const { sweep, state } = page;
  const keys = ["a", "b"].filter((key) => state[key]);
  const pinned = keys.map((key) => cellFrom(sweep, state[key]));
  if (!pinned.length) {
    fill("compare");
    return;
  }
  const both = pinned.length === 2;
  const parts = pinned.map((cell) => nameOf(sweep, cell, Object.keys(cell)).split(" · "));
  const common = both ? parts[0].filter((part) => parts[1].includes(part)) : [];
  const rows = [];
  const holes = new Set();
  let same = 0;
  for (const name of page.quantities) {
    const array = sweep.arrays[name];
    const numbers = pinned.map((cell) => numberAt(array, cell));
    const texts = numbers.map((number) => shownText(array, number));
    numbers.forEach((number, n) => {
      if (Number.isNaN(number)) holes.add(`${keys[n].toUpperCase()}: ${reasonAt(sweep, array, pinned[n])}`);
    });
    const ratio = both && !array.texts ? numbers[1] / numbers[0] : NaN;
    if (both && texts[0] === texts[1]) same += 1;
    else rows.push([capital(array.title), ...texts, ...(both ? [Number.isFinite(ratio) ? `${numberText(ratio, 3)} ×` : ""] : [])]);
  }
  const heads = ["", ...parts.map((part, n) => {
    const left = part.filter((word) => !common.includes(word)).join(" · ");
    return left ? `${keys[n].toUpperCase()}: ${left}` : keys[n].toUpperCase();
  }), ...(both ? ["B over A"] : [])];
  const notes = [...(common.length ? [`both: ${common.join(" · ")}`] : []),
    ...(same ? [`${same} quantities are the same in both`] : []),
    ...holes];
  fill("compare", make("h2", {}, both ? "A and B compared" : "Pinned; pin another cell to compare"),
    note(notes.join("; ")), table(heads, rows),
    make("div", { className: "row" }, button("Take the pins out", () => state.set({ a: "", b: "" }))));
}
