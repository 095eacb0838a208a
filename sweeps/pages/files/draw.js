// Figures: axes and words as SVG, which can be read and selected; marks on a canvas, which holds
// a million of them.

let COLOURS = { light: [], dark: [], areas: [], shades: [] };
let PRINTING = false;
const LINE = 15;
const DASHES = [[], [7, 3], [2, 2], [9, 3, 2, 3]];
const SVG = "http://www.w3.org/2000/svg";

function setColours(colours) {
  COLOURS = colours;
}

function isDark() {
  return !PRINTING && matchMedia("(prefers-color-scheme: dark)").matches;
}

function lineColour(index) {
  const colours = isDark() ? COLOURS.dark : COLOURS.light;
  return colours[index % colours.length];
}

function areaColour(index) {
  return COLOURS.areas[index % COLOURS.areas.length];
}

// A colour of the scale for numbers, from 0 to 1.
function shade(share) {
  const last = COLOURS.shades.length - 1;
  const at = Math.min(Math.max(share, 0), 1) * last;
  const low = Math.min(Math.floor(at), last - 1);
  const part = (index, n) => parseInt(COLOURS.shades[index].slice(1 + 2 * n, 3 + 2 * n), 16);
  const mixed = [0, 1, 2].map((n) => part(low, n) + (at - low) * (part(low + 1, n) - part(low, n)));
  return `rgb(${mixed.map(Math.round).join(",")})`;
}

// Calls `draw` where the page's width, its light or its paper change.
function redrawn(draw) {
  let width = window.innerWidth;
  window.addEventListener("resize", () => {
    if (window.innerWidth !== width) draw();
    width = window.innerWidth;
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  for (const [name, printing] of [["beforeprint", true], ["afterprint", false]]) {
    window.addEventListener(name, () => {
      PRINTING = printing;
      draw();
    });
  }
}

function shape(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

const WIDTHS = new WeakMap();

// A region's width.  Asked for anew only where the window has another: a browser would lay the
// whole page out each time.
function widthOf(host) {
  const known = WIDTHS.get(host);
  if (known && known[0] === window.innerWidth && !PRINTING) return known[1];
  WIDTHS.set(host, [PRINTING ? 0 : window.innerWidth, host.clientWidth]);
  return WIDTHS.get(host)[1];
}

// Puts empty axes into a region.  asked: { x(pixels) and y(pixels) -> axis, height, right (room
// for words on the right), left (room for names, where the vertical axis is none), bare (no
// vertical axis), said (what a reader who sees no figure is told) }
// Returns { svg, ctx, left, top, width, height, x, y, px(value), py(value), host }.
function makeFrame(host, asked) {
  const outer = Math.max(widthOf(host), 260);
  const height = asked.height || Math.min(460, Math.max(300, outer * 0.55));
  const words = asked.y ? inLines(asked.y(100).label, outer - 6) : [];
  const below = inLines(asked.x(100).label, outer - 8);
  const top = asked.top ?? 28 + LINE * (words.length > 1);
  const inner = height - top - 44 - LINE * (below.length - 1);
  const y = asked.y ? asked.y(inner) : null;
  const names = y ? Math.max(...y.ticks.map((tick) => textWidth(tick.text)), 0) + 12 : 0;
  const left = asked.left ?? Math.max(names, 28);
  const width = outer - left - (asked.right || 14);
  const x = asked.x(width);
  const canvas = document.createElement("canvas");
  const ratio = window.devicePixelRatio || 1;
  canvas.width = outer * ratio;
  canvas.height = height * ratio;
  canvas.style.height = `${height}px`;
  const ctx = canvas.getContext("2d");
  ctx.scale(ratio, ratio);
  canvas.setAttribute("aria-hidden", "true");
  const said = asked.said || `${y ? `${y.label} over ` : ""}${x.label}`;
  const svg = shape("svg", { viewBox: `0 0 ${outer} ${height}`, width: outer, height, role: "img", "aria-label": said });
  const box = make("div", { className: "plot" }, canvas, svg);
  host.replaceChildren(box);
  const frame = { host, svg, ctx, left, top, width, height: inner, x, y, outer, words, below };
  frame.px = (value) => left + width * x.share(value);
  frame.py = y ? (value) => top + inner * (1 - y.share(value)) : null;
  frame.clip = (draw) => {
    ctx.save();
    ctx.beginPath();
    ctx.rect(left - 6, top - 6, width + 12, inner + 12);
    ctx.clip();
    draw(ctx);
    ctx.restore();
  };
  drawAxes(frame);
  return frame;
}

// A label in two lines at most.
function inLines(label, pixels) {
  if (textWidth(label) <= pixels) return [label];
  const all = label.split(" ");
  let many = all.length - 1;
  while (many > 1 && textWidth(all.slice(0, many).join(" ")) > pixels) many -= 1;
  return [all.slice(0, many).join(" "), cut(all.slice(many).join(" "), pixels)];
}

function drawAxes({ svg, ctx, left, top, width, height, x, y, px, py, outer, words, below }) {
  const base = top + height;
  ctx.strokeStyle = isDark() ? "#3a3d40" : "#e4e4e4";
  const grid = (...ends) => {
    ctx.beginPath();
    ctx.moveTo(ends[0], ends[1]);
    ctx.lineTo(ends[2], ends[3]);
    ctx.stroke();
  };
  const text = (attributes, words) => svg.append(shape("text", attributes, words));
  for (const tick of x.ticks) {
    const at = px(tick.value);
    if (!x.band) grid(at, top, at, base);
    const half = textWidth(tick.text) / 2;
    const inside = Math.min(Math.max(at, half + 1), outer - half - 1);
    text({ x: inside, y: base + 17, "text-anchor": "middle" }, tick.text);
  }
  svg.append(shape("line", { x1: left, x2: left + width, y1: base, y2: base, class: "axis" }));
  below.forEach((label, n) => {
    const half = textWidth(label) / 2 + 4;
    const at = Math.min(Math.max(left + width / 2, half), outer - half);
    text({ x: at, y: base + 37 + LINE * n, "text-anchor": "middle", class: "label" }, label);
  });
  if (!y) return;
  for (const tick of y.ticks) {
    const up = py(tick.value);
    if (!y.band) grid(left, up, left + width, up);
    const named = shape("text", { x: left - 7, y: up + 4, "text-anchor": "end" }, tick.text);
    if (tick.whole && tick.whole !== tick.text) named.append(shape("title", {}, tick.whole));
    svg.append(named);
  }
  words.forEach((label, n) => text({ x: 2, y: 13 + LINE * n, class: "label" }, label));
}

// Lines: { x, y: as `axisOf` asks (x may be { texts, label }: names), series: [{ label, points:
// [[x, y], ..], colour (place) }], cursor (an x), limits: [{ value, label }], height }
function drawLines(host, asked) {
  const wide = widthOf(host) >= 560 && asked.series.length > 1 && asked.series.length <= 7;
  // Names at lines' ends are bold.
  const longest = wide ? 1.1 * Math.max(...asked.series.map((line) => textWidth(line.label))) : 0;
  const named = wide && longest <= 0.3 * widthOf(host);
  const frame = makeFrame(host, {
    x: (pixels) => (asked.x.texts ? bandAxis(asked.x.texts, asked.x.label, pixels)
      : axisOf({ zero: false, ...asked.x }, pixels)),
    y: (pixels) => axisOf(asked.y, pixels, true),
    right: named ? longest + 32 : 16,
    height: asked.height,
  });
  const { px, py } = frame;
  const ends = [];
  frame.clip((ctx) => asked.series.forEach((line, index) => {
    const colour = lineColour(line.colour ?? index);
    ctx.strokeStyle = colour;
    ctx.fillStyle = colour;
    ctx.lineWidth = 2;
    // Of lines that lie on one another the later ones are dashed, so that each is seen.
    const under = asked.series.slice(0, index).filter((other) => isOn(line.points, other.points)).length;
    ctx.setLineDash(under ? [8, 8 * under] : DASHES[Math.floor(index / 6) % DASHES.length]);
    ctx.beginPath();
    let joined = false;
    for (const [x, y] of line.points) {
      const there = Number.isFinite(y) && (y > 0 || !frame.y.log);
      if (there && joined) ctx.lineTo(px(x), py(y));
      else if (there) ctx.moveTo(px(x), py(y));
      joined = there;
      if (there) ends[index] = [px(x), py(y)];
    }
    // Between names there is nothing.
    if (!asked.x.texts) ctx.stroke();
    ctx.setLineDash([]);
    if (!under) for (const [x, y] of line.points.length <= 60 || asked.x.texts ? line.points : []) {
      if (Number.isFinite(y)) disc(ctx, px(x), py(y), 3);
    }
  }));
  drawLimits(frame, asked.limits || []);
  if (asked.cursor !== undefined) {
    const at = px(asked.cursor);
    const line = { x1: at, x2: at, y1: frame.top, y2: frame.top + frame.height, class: "cursor" };
    frame.svg.append(shape("line", line));
  }
  if (named) nameEnds(frame, asked.series, ends);
  else if (asked.series.length > 1) {
    host.append(legend(asked.series.map((line, index) => {
      return { label: line.label, colour: lineColour(line.colour ?? index), line: true };
    })));
  }
  return frame;
}

// Whether two lines are one to the eye.
function isOn(points, others) {
  const along = new Map(others);
  return points.every(([x, y]) => Object.is(y, along.get(x)) || Math.abs(y / along.get(x) - 1) < 0.003);
}

// The first of some places where a text of some half a width meets no other, and is in the panel.
function freePlace({ left, top, width, height }, boxes, tries, half) {
  const free = tries.find(([x, y]) => x >= left + half && x <= left + width - half && y > top + 6 && y < top + height - 4
    && !boxes.some(([a, b, w]) => Math.abs(a - x) < w + half && Math.abs(b - y) < 15));
  if (free) boxes.push([...free, half]);
  return free;
}

// Names lines at their ends, moved apart.
function nameEnds(frame, series, ends) {
  const placed = series.map((line, index) => ({ line, index, end: ends[index] }))
    .filter(({ end }) => end).sort((a, b) => a.end[1] - b.end[1]);
  let free = frame.top + 4;
  placed.forEach((each) => {
    each.at = Math.max(each.end[1] + 4, free);
    free = each.at + 15;
  });
  let low = frame.top + frame.height + 4;
  for (const each of [...placed].reverse()) {
    each.at = Math.min(each.at, low);
    low = each.at - 15;
  }
  for (const { line, index, at } of placed) {
    const x = frame.left + frame.width + 8;
    const stroke = shape("path", { d: `M${x} ${at - 4}h8`, "stroke-width": 3 });
    stroke.style.stroke = lineColour(line.colour ?? index);
    frame.svg.append(stroke, shape("text", { x: x + 12, y: at, class: "name" }, line.label));
  }
}

function disc(ctx, x, y, radius) {
  ctx.beginPath();
  ctx.arc(x, y, radius, 0, 2 * Math.PI);
  ctx.fill();
}

function drawLimits(frame, limits) {
  for (const { value, label, upright, above } of limits) {
    const { left, top, width, height } = frame;
    const at = upright ? frame.px(value) : frame.py(value);
    if (upright ? at < left || at > left + width : at < top || at > top + height) continue;
    const line = upright ? { x1: at, x2: at, y1: top, y2: top + height }
      : { x1: left, x2: left + width, y1: at, y2: at };
    frame.svg.append(shape("line", { ...line, class: "limit" }));
    const flipped = upright && at + textWidth(label) + 8 > left + width;
    const corner = upright ? { x: at + (flipped ? -5 : 5), y: above ? top - 5 : top + 10 } : { x: left + 6, y: at - 5 };
    const anchor = flipped ? "end" : "start";
    frame.svg.append(shape("text", { ...corner, class: "note", "text-anchor": anchor }, label));
  }
}

// Points: { x, y: as `axisOf` asks, xs, ys: numbers, colour: places (-1: pale), order: places of
// points to name 1, 2, .., front: places of a front from left to right, limits, height }
function drawPoints(host, asked) {
  const frame = makeFrame(host, {
    x: (pixels) => axisOf(asked.x, pixels),
    y: (pixels) => axisOf(asked.y, pixels, true),
    height: asked.height,
  });
  const { px, py } = frame;
  const { xs, ys, colour } = asked;
  const many = xs.length > 5000;
  // Of many points at one spot one is drawn.
  const across = Math.ceil(frame.outer / 2);
  const taken = new Uint8Array(many ? across * (frame.top + frame.height + 20) : 0);
  const pale = isDark() ? "#5a5a5a" : "#c4c4c4";
  const colours = [...Array(12).keys()].map(lineColour);
  frame.clip((ctx) => {
    for (const wanted of [true, false]) {
      for (let n = 0; n < xs.length; n += 1) {
        if ((colour[n] < 0) !== wanted || !Number.isFinite(xs[n]) || !Number.isFinite(ys[n])) continue;
        const [x, y] = [px(xs[n]), py(ys[n])];
        if (many) {
          const spot = Math.round(y / 2) * across + Math.round(x / 2);
          if (taken[spot] === colour[n] + 2) continue;
          taken[spot] = colour[n] + 2;
        }
        ctx.fillStyle = wanted ? pale : colours[colour[n]];
        if (many) ctx.fillRect(x - 1.5, y - 1.5, 3, 3);
        else disc(ctx, x, y, wanted ? 2.6 : 4);
      }
    }
    const front = asked.front || [];
    ctx.strokeStyle = isDark() ? "#ff8a5c" : "#C23B00";
    ctx.lineWidth = 1.5;
    ctx.beginPath();
    front.forEach((n, rank) => {
      if (rank) ctx.lineTo(px(xs[n]), py(ys[front[rank - 1]]));
      ctx.lineTo(px(xs[n]), py(ys[n]));
    });
    ctx.stroke();
  });
  drawLimits(frame, asked.limits || []);
  const boxes = [];
  asked.order?.forEach((n, rank) => {
    const spots = [[0, -9], [10, 4], [-10, 4], [0, 19], [12, -8], [-12, -8], [12, 16], [-12, 16]];
    const [x, y] = [px(xs[n]), py(ys[n])];
    const free = freePlace(frame, boxes, spots.map(([right, down]) => [x + right, y + down]), 6);
    if (free) frame.svg.append(shape("text", { x: free[0], y: free[1], "text-anchor": "middle", class: "rank" }, rank + 1));
  });
  return frame;
}

// A map: { x, y: { texts, label } or as `axisOf` asks with sorted values, colour(column, row) ->
// a colour or null (a hole), kind(column, row) -> a number by which areas are told apart (null: none),
// height, cursor: [column, row] }
function drawMap(host, asked) {
  const axis = (side, pixels, upright) => {
    if (side.texts) return bandAxis(side.texts, side.label, pixels, upright);
    return axisOf({ ...side, log: isLog(side), ends: rims(side) }, pixels, upright);
  };
  const frame = makeFrame(host, {
    x: (pixels) => axis(asked.x, pixels, false),
    y: (pixels) => axis(asked.y, pixels, true),
    height: asked.height,
  });
  const bounds = (side, pixel) => side.texts
    ? side.texts.map((_, n) => [n - 0.5, n + 0.5]).map((both) => both.map(pixel))
    : edges(side).map((both) => both.map(pixel));
  const across = bounds(asked.x, frame.px);
  const upward = bounds(asked.y, frame.py);
  const box = ([a, b], [c, d]) => [Math.min(a, b), Math.min(c, d), Math.abs(b - a), Math.abs(d - c)];
  frame.clip((ctx) => {
    across.forEach((column, n) => upward.forEach((row, m) => {
      const colour = asked.colour(n, m);
      if (!colour) return;
      const [x, y, width, height] = box(column, row);
      ctx.fillStyle = colour;
      // Whole pixels, so that no line is seen between cells of one colour.
      const [from, low] = [Math.floor(x), Math.floor(y)];
      ctx.fillRect(from, low, Math.ceil(x + width) - from, Math.ceil(y + height) - low);
    }));
  });
  if (asked.kind) markAreas(frame, asked, across, upward);
  if (asked.cursor) {
    const [x, y, width, height] = box(across[asked.cursor[0]], upward[asked.cursor[1]]);
    frame.svg.append(shape("rect", { x, y, width, height, class: "chosen" }));
  }
  frame.cells = { across, upward };
  return frame;
}

// Lines between areas of one kind.
function markAreas(frame, asked, across, upward) {
  const [columns, rows] = [across.length, upward.length];
  const kind = (n, m) => (n < columns && m < rows ? asked.kind(n, m) : NaN);
  const { ctx } = frame;
  frame.clip(() => {
    ctx.strokeStyle = isDark() ? "#111" : "#fff";
    ctx.lineWidth = 1.5;
    ctx.beginPath();
    for (let n = 0; n < columns; n += 1) {
      for (let m = 0; m < rows; m += 1) {
        const [right, up] = [across[n][1], upward[m][1]];
        if (n + 1 < columns && !Object.is(kind(n, m), kind(n + 1, m))) {
          ctx.moveTo(right, upward[m][0]);
          ctx.lineTo(right, up);
        }
        if (m + 1 < rows && !Object.is(kind(n, m), kind(n, m + 1))) {
          ctx.moveTo(across[n][0], up);
          ctx.lineTo(right, up);
        }
      }
    }
    ctx.stroke();
  });
}

function isLog(side) {
  if (side.log === true || side.log === false) return side.log && side.values[0] > 0;
  return side.values[0] > 0 && side.values[side.values.length - 1] / side.values[0] >= 4;
}

// The two edges of each value's cell: half way to its neighbours.
function edges(side) {
  const values = side.values;
  const [turn, back] = isLog(side) ? [Math.log, Math.exp] : [(v) => v, (v) => v];
  const places = values.map(turn);
  const gap = (n) => (places[n + 1] - places[n]) / 2;
  return places.map((centre, n) => {
    const before = n > 0 ? gap(n - 1) : places.length > 1 ? gap(0) : 0.5;
    const after = n < places.length - 1 ? gap(n) : before;
    return [back(centre - before), back(centre + after)];
  });
}

function rims(side) {
  const all = edges(side);
  return [all[0][0], all[all.length - 1][1]];
}

// Parts of which those below zero are taken off the next, as the figures have them; else what is
// stacked would be more than the whole.
function folded(values) {
  const left = values.map((value) => value || 0);
  for (const step of [1, -1]) {
    for (let n = step > 0 ? 0 : left.length - 1; left[n + step] !== undefined; n += step) {
      left[n + step] += Math.min(left[n], 0);
      left[n] = Math.max(left[n], 0);
    }
  }
  return left;
}

// Tells which parts are below zero in some row.
function belowText(rows, labels) {
  const below = labels.filter((_, n) => rows.some((values) => values[n] < 0));
  return note(below.length ? `Below zero, so taken off the part beside it: ${below.join(", ")}.` : "");
}

// Stacked bars: { rows: [{ name, values: [..], text, ends (of the band of their sum) }], parts: [{ label, colour (a colour) }],
// units, label, percent, multiple, limits, chosen (a row) }.  A part below zero isn't drawn.
function drawBars(host, asked) {
  const narrow = widthOf(host) < 560;
  const longest = Math.max(0, ...asked.rows.map((row) => textWidth(row.name)));
  const left = narrow ? 4 : Math.min(longest + 14, 0.42 * widthOf(host));
  const step = narrow ? 44 : 28;
  const total = (row) => row.values.reduce((sum, value) => sum + Math.max(value, 0), 0);
  const marks = (asked.limits || []).map((limit) => limit.value);
  const ends = asked.rows.flatMap((row) => row.ends || []);
  const values = [...asked.rows.map(total), ...marks, ...ends, 0].filter(Number.isFinite);
  const beside = Math.max(0, ...asked.rows.map((row) => textWidth(row.text || ""))) + 14;
  const frame = makeFrame(host, {
    x: (pixels) => axisOf({ ...asked, values, log: false }, pixels),
    left,
    right: beside,
    said: saidOfBars(asked, total),
    top: (asked.limits || []).length ? 20 : 8,
    height: asked.rows.length * step + 60,
  });
  frame.rows = asked.rows.map((row, n) => {
    const top = frame.top + n * step + (narrow ? 20 : 4);
    let from = 0;
    row.values.forEach((value, part) => {
      if (!(value > 0)) return;
      frame.ctx.fillStyle = asked.parts[part].colour;
      const start = frame.px(from);
      frame.ctx.fillRect(start, top, Math.max(frame.px(from + value) - start, 0), 20);
      from += value;
    });
    const [low, high] = (row.ends || []).map(frame.px);
    if (high > low) {
      frame.svg.append(shape("path", { class: "band", d: `M${low} ${top + 4}v12m0-6H${high}m0-6v12` }));
      from = Math.max(from, row.ends[1]);
    }
    const name = cut(row.name, narrow ? frame.outer - 8 : left - 14);
    const corner = narrow ? { x: left, y: top - 5 } : { x: left - 8, y: top + 14, "text-anchor": "end" };
    const named = shape("text", { ...corner, class: asked.chosen === n ? "now" : "" }, name);
    named.append(shape("title", {}, row.name));
    // No number stands on a limit's line.
    const beyond = marks.map((value) => frame.px(value)).filter((at) => {
      return at > frame.px(from) - 2 && at < frame.px(from) + textWidth(row.text || "") + 10;
    });
    const end = { x: Math.max(frame.px(from), ...beyond) + 6, y: top + 14, class: "total" };
    frame.svg.append(named, shape("text", end, row.text || ""));
    return [top - (narrow ? 20 : 4), top - (narrow ? 20 : 4) + step];
  });
  drawLimits(frame, (asked.limits || []).map((limit) => ({ ...limit, upright: true, above: true })));
  host.append(legend(asked.parts));
  return frame;
}

// Bars in words: each with its number and the shares of its parts.
function saidOfBars({ rows, parts, label }, total) {
  const each = rows.map((row) => {
    const shares = row.values.map((value, n) => (value > 0 ? `, ${parts[n].label} ${percentText(value / total(row), 0)}` : ""));
    return `${row.name} ${row.text || ""}${shares.join("")}`;
  });
  return `${label}: ${each.join("; ")}`;
}

// What colours mean: [{ label, colour, line }], as a list.
function legend(items) {
  return make("ul", { className: "legend" }, ...items.map((item) => {
    const sample = make("span", { className: item.line ? "stroke" : "patch" });
    sample.style.background = item.colour;
    return make("li", {}, sample, item.label);
  }));
}

// The scale of a map's numbers.
function shadeBar(low, high) {
  const bar = make("span", { className: "shades" });
  const stops = [0, 1, 2, 3, 4, 5, 6, 7, 8].map((n) => shade(n / 8));
  bar.style.background = `linear-gradient(to right, ${stops.join(", ")})`;
  return make("p", { className: "legend" }, low, bar, high);
}

// Lets a reader point at marks, go through them by the arrow keys, and choose one by a click or
// Enter.  marks: { count, find(x, y) -> place or -1, at(place) -> [x, y] or null, show(place; -1:
// none), choose(place), now: a place }
function interact(frame, marks) {
  const { host, svg } = frame;
  const ring = shape("circle", { r: 8, class: "ring", visibility: "hidden" });
  svg.append(ring);
  let now = marks.now ?? -1;
  const point = (mark) => {
    const at = mark < 0 ? null : marks.at(mark);
    ring.setAttribute("visibility", at ? "visible" : "hidden");
    if (at) {
      ring.setAttribute("cx", at[0]);
      ring.setAttribute("cy", at[1]);
    }
  };
  const show = (mark) => {
    point(mark);
    marks.show(mark);
  };
  const where = (event) => {
    const box = svg.getBoundingClientRect();
    return marks.find(event.clientX - box.left, event.clientY - box.top);
  };
  point(now);
  host.tabIndex = 0;
  svg.onpointermove = (event) => show(where(event));
  svg.onpointerleave = () => {
    point(now);
    marks.show(-1);
  };
  svg.onclick = (event) => {
    const mark = where(event);
    if (mark >= 0) marks.choose(mark);
  };
  host.onkeydown = (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (step && marks.count) {
      now = (now + step + marks.count) % marks.count;
      show(now);
    } else if (event.key === "Enter" && now >= 0) marks.choose(now);
    else return;
    event.preventDefault();
  };
}

// The nearest of some places, at most some pixels away.
function nearest(count, at, x, y, most = 40) {
  let best = -1;
  let least = most * most;
  for (let n = 0; n < count; n += 1) {
    const spot = at(n);
    if (!spot) continue;
    const away = (spot[0] - x) ** 2 + (spot[1] - y) ** 2;
    if (away < least) [best, least] = [n, away];
  }
  return best;
}
