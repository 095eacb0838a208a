// The live page: a plan that its reader sets, computed by formulas that stand in the page.

const GROUPS = { plan: "Plan", work: "Work", overlap: "Overlap", machine: "Machine", money: "Money",
  failures: "Interruptions" };
const HELPING = 6;
const BEST = 8;
const SEARCHED = ["tp", "cp", "pp", "ep", "dp", "virtual_pipeline_size", "micro_batch_size", "zero_stage", "sequence_parallel",
  "schedule", "recompute"];
const at = (id) => document.getElementById(id);

// What is chosen, by name: numbers of controls, texts of labels; at the start the first answer's.
function startOf(data) {
  const numbers = new Map(data.inputs);
  const chosen = {};
  for (const { name } of data.controls) chosen[name] = numbers.get(name) ?? NaN;
  for (const { name, values } of data.labels) chosen[name] = values[numbers.get(name)];
  return chosen;
}

// Whether a control counts: a share that hides doesn't where a mechanism says what does.
function isHeeded(data, chosen, control) {
  return !control.mechanism || (chosen[control.mechanism] ?? "efficiency") === "efficiency";
}

// What differs from the start, as the names of controls and labels.
function changedOf(data, chosen) {
  const first = startOf(data);
  return [...data.controls, ...data.labels].filter((one) => {
    const same = Object.is(chosen[one.name], first[one.name]);
    return !same && (one.values.includes(chosen[one.name]) || isHeeded(data, chosen, one));
  });
}

// The numbers that formulas take: what is set brings along what follows from it.
function inputsOf(data, chosen) {
  const numbers = new Map(data.inputs.map(([name, value]) => [name, value ?? NaN]));
  for (const one of changedOf(data, chosen)) {
    if (!one.along) {
      numbers.set(one.name, one.values.indexOf(chosen[one.name]));
      if (one.settles) numbers.set(data.unknown, numbers.get(data.unknown) - 1);
      continue;
    }
    const value = chosen[one.name];
    numbers.set(one.name, value);
    for (const [name, own] of Object.entries(one.along)) numbers.set(name, own ?? value);
  }
  if (data.domain) {
    // A job takes the most GPUs of each domain that divide its own.
    const { most, shares, degrees } = data.domain;
    const gpus = Object.entries(degrees).reduce((all, [name, own]) => all * (chosen[name] ?? own), 1);
    let taken = Math.min(most, Math.max(Math.floor(gpus), 1));
    while (taken > 1 && gpus % taken !== 0) taken -= 1;
    for (const [name, share] of Object.entries(shares)) numbers.set(name, share * taken);
  }
  return Float64Array.from(numbers.values());
}

// Everything that follows from what is chosen: value(name), NaN where it isn't; would(name), also
// of a plan that doesn't fit; reasons why the plan can't be.
function computed(data, chosen) {
  const found = new Float64Array(data.outputs.length);
  program(inputsOf(data, chosen), found);
  const places = new Map(data.outputs.map((one, place) => [one.name, place]));
  const status = found[places.get("status")];
  const reasons = data.faults.filter((one) => status & one.bit && !one.note);
  const fit = data.faults.find((one) => one.name === "does_not_fit").bit;
  const masked = (name, bits) => {
    const place = places.get(name);
    if (place === undefined) return NaN;
    return bits & data.outputs[place].mask ? NaN : found[place];
  };
  return {
    status, reasons, fits: !(status & fit), can: reasons.every((one) => one.bit === fit),
    value: (name) => masked(name, status), would: (name) => masked(name, status & ~fit),
  };
}

// What a control's number can be nearest to a number: whole, and a batch one that divides.
function snapped(data, chosen, control, value) {
  if (!control.whole || Number.isNaN(value)) return value;
  const one = (name) => chosen[name] ?? 1;
  let step = 1;
  if (control.name === "sequence_length") step = value >= 4096 ? 1024 : 256;
  if (control.name === "global_batch_size" || control.name === "tokens_per_step") {
    const dp = "dp" in chosen ? chosen.dp : one("world_size") / (one("tp") * one("cp") * one("pp"));
    step = Math.max(Math.floor(dp), 1) * one("micro_batch_size");
    if (control.name === "tokens_per_step") step *= one("sequence_length");
  }
  return Math.max(Math.round(value / step), 1) * step;
}

// The next value of a control that goes in steps.
function stepped(control, value, up) {
  const further = control.values.filter((one) => (up ? one > value : one < value));
  if (!further.length) return value;
  return up ? Math.min(...further) : Math.max(...further);
}

// Single changes that make a plan faster, or possible, the best first.
function helping(data, chosen) {
  const now = computed(data, chosen);
  const limit = now.reasons.length ? Infinity : now.value("step_time");
  const found = [];
  const add = (one, value) => {
    const then = computed(data, { ...chosen, [one.name]: value });
    const time = then.reasons.length ? NaN : then.value("step_time");
    if (time < limit * 0.998) found.push({ one, value, then, time });
  };
  for (const one of data.controls.filter((each) => each.group === "plan")) {
    if (one.name === "world_size") continue;
    for (const up of [true, false]) {
      const value = stepped(one, chosen[one.name], up);
      if (value !== chosen[one.name]) add(one, value);
    }
  }
  for (const one of data.labels) {
    for (const value of one.values.filter((each) => each !== "forward_only")) {
      if (value !== chosen[one.name] && !one.lacking.includes(value)) add(one, value);
    }
  }
  return found.sort((a, b) => a.time - b.time).slice(0, HELPING);
}

// Plans of as many GPUs, one after another: the splits, and what is chosen beside them.
function* candidates(data, chosen) {
  const { search } = data;
  const stepsOf = (name) => data.controls.find((one) => one.name === name)?.values ?? [chosen[name] ?? 1];
  const world = chosen.world_size ?? ["dp", "tp", "cp", "pp"].reduce((all, name) => all * (chosen[name] ?? 1), 1);
  const has = (name) => data.controls.some((one) => one.name === name);
  const zeros = has("zero_stage") ? search.zero : [undefined];
  for (const tp of stepsOf("tp")) for (const cp of stepsOf("cp")) for (const pp of stepsOf("pp")) {
    const dp = world / (tp * cp * pp);
    if (!Number.isInteger(dp) || tp > (search.tp ?? Infinity)) continue;
    for (const schedule of pp > 1 ? search.schedule : search.schedule.slice(0, 1)) {
      const cut = search.chunked.includes(schedule);
      for (const ep of stepsOf("ep")) for (const virtual_pipeline_size of stepsOf("virtual_pipeline_size")) {
        if (virtual_pipeline_size > 1 !== (cut && pp > 1)) continue;
        if (pp * virtual_pipeline_size > (search.chunks ?? Infinity)) continue;
        for (const micro_batch_size of stepsOf("micro_batch_size")) {
          if (chosen.global_batch_size % (dp * micro_batch_size)) continue;
          for (const zero_stage of zeros) for (const recompute of search.recompute) {
            yield { tp, cp, pp, ep, dp, virtual_pipeline_size, micro_batch_size, zero_stage, recompute, schedule,
              sequence_parallel: Number(tp > 1) };
          }
        }
      }
    }
  }
}

// Computes a candidate: [the time of a step, memory], or nothing where it can't run.
function searching(data, chosen) {
  const first = startOf(data);
  const names = data.inputs.map(([name]) => name);
  const unknown = names.indexOf(data.unknown);
  const searched = new Map([...data.controls, ...data.labels].map((one) => [one.name, one]));
  const base = inputsOf(data, { ...chosen, ...Object.fromEntries(
    SEARCHED.filter((name) => searched.has(name)).map((name) => [name, first[name]])) });
  const dials = SEARCHED.filter((name) => searched.has(name)).map((name) => {
    const one = searched.get(name);
    const along = Object.entries(one.along ?? {}).map(([other, own]) => [names.indexOf(other), own]);
    return { name, one, place: names.indexOf(name), along };
  });
  const places = new Map(data.outputs.map(({ name }, place) => [name, place]));
  const [time, memory] = [places.get("step_time"), places.get("peak_memory")];
  const [status, left] = [places.get("status"), places.get("left_out")];
  const { mask } = data.outputs[time];
  const [numbers, found] = [new Float64Array(base.length), new Float64Array(places.size)];
  return (plan) => {
    numbers.set(base);
    for (const { name, one, place, along } of dials) {
      const value = plan[name];
      if (value === first[name]) continue;
      numbers[place] = one.along ? value : one.values.indexOf(value);
      if (one.settles) numbers[unknown] -= 1;
      for (const [other, own] of along) numbers[other] = own ?? value;
    }
    program(numbers, found);
    return found[status] & mask || found[left] ? null : [found[time], found[memory]];
  };
}

// The best plan of each split, the fastest first, with how many can run of how many tried: in
// slices, after each of which `told` is called with what there is; it is true where it goes on.
function search(data, chosen, told, slice = 12, later = setTimeout) {
  const left = candidates(data, chosen);
  const compute = searching(data, chosen);
  const best = new Map();
  let [tried, fine] = [0, 0];
  const go = () => {
    const end = performance.now() + slice;
    let next = left.next();
    for (; !next.done; next = left.next()) {
      const plan = next.value;
      const found = compute(plan);
      tried += 1;
      if (found) {
        fine += 1;
        const split = `${plan.tp},${plan.cp},${plan.pp},${plan.ep}`;
        if (!(best.get(split)?.time <= found[0])) best.set(split, { plan, time: found[0], memory: found[1] });
      }
      if (tried % 64 === 0 && performance.now() > end) break;
    }
    const plans = [...best.values()].sort((a, b) => a.time - b.time);
    if (told({ plans, tried, fine, done: Boolean(next.done) }) && !next.done) later(go, 0);
  };
  go();
}

// The command that gives the same numbers.
function commandOf(data, chosen) {
  const flags = new Map(data.given.map(([name, flag, text]) => [name, [flag, text]]));
  for (const one of changedOf(data, chosen)) flags.set(one.name, [one.flag, String(chosen[one.name])]);
  const quoted = (text) => (/^[\w.:\/+-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
  return ["sweeps analysis", ...[...flags.values()].map(([flag, text]) => `${flag} ${quoted(text)}`)].join(" ");
}

// The page itself.

function start(data) {
  const first = startOf(data);
  const fields = {};
  for (const one of data.controls) {
    fields[one.name] = {
      initial: first[one.name], write: String,
      read: (text) => (Number.isFinite(Number(text)) && text !== "" ? readable(one, Number(text), first[one.name]) : undefined),
    };
  }
  for (const { name, values, lacking } of data.labels) {
    fields[name] = {
      initial: first[name], write: String,
      read: (text) => (values.includes(text) && !lacking.includes(text) ? text : undefined),
    };
  }
  const page = { data, units: new Map(data.outputs.map((one) => [one.name, one])) };
  page.state = makeState(fields, () => draw(page));
  document.body.classList.add("live");
  page.dials = controlsOf(page);
  about(page);
  redrawn(() => draw(page));
  draw(page);
}

const readable = (control, value, otherwise) => {
  const found = limited(control, value);
  return Number.isNaN(found) ? otherwise : found;
};

function limited(control, value) {
  // On another number of chips the network is another one, of which there are no formulas here.
  if (control.only && !control.values.includes(value)) return NaN;
  const least = Math.min(control.values[0], control.log ? 0 : Infinity);
  const most = control.name.endsWith("_overlap") || control.name === "zero_stage"
    || control.name === "sequence_parallel" ? control.values[control.values.length - 1] : Infinity;
  return Math.min(Math.max(value, least), most);
}

function chosenOf({ data, state }) {
  return Object.fromEntries([...data.controls, ...data.labels].map(({ name }) => [name, state[name]]));
}

function draw(page) {
  const { data } = page;
  const chosen = chosenOf(page);
  const found = computed(data, chosen);
  for (const dial of page.dials) dial(chosen);
  at("answer").replaceChildren(...answer(page, chosen, found));
  const figures = at("figure");
  if (!figures.childElementCount) {
    for (const name of ["step", "memory", "communication", "run"]) {
      figures.append(make("h2", { id: `${name}-title` }), make("div", { id: `${name}-figure` }));
    }
  }
  const first = computed(data, startOf(data));
  const differs = changedOf(data, chosen).length > 0;
  const rows = (values, total) => [["now", found], ...(differs ? [["at the start", first]] : [])]
    .map(([name, one]) => ({ name, values: values(one), text: total(one) }))
    .filter((row) => row.values.some((value) => value > 0));
  bars(page, "step", "Step time", "s", data.parts.step, rows);
  bars(page, "memory", "Peak memory per GPU", "byte (GB)", data.parts.memory, rows, [
    { value: chosen.memory_capacity, label: "capacity" },
  ]);
  communication(page, rows);
  figure("run", "Run time with failures", rows(
    (one) => data.parts.run.map(([name]) => 100 * one.would(name)),
    (one) => `${shown(page, "goodput", one.would("goodput"))} goodput`,
  ), data.parts.run, "%", []);
  clearTimeout(page.later);
  page.ticket = null;
  page.later = setTimeout(() => {
    numbers(page, found, first, differs);
    help(page, chosen, found);
    page.later = setTimeout(() => best(page, chosen), 240);
  }, 60);
}

// What a search among plans finds, while it is at work and after.
function best(page, chosen) {
  const ticket = (page.ticket = {});
  const { search: among, controls } = page.data;
  const offered = new Set([...controls, ...page.data.labels].map((one) => one.name));
  const host = page.found ?? (page.found = make("div", { id: "search" }));
  at("best").append(host);
  const title = (text) => make("h2", {}, text);
  search(page.data, chosen, ({ plans, tried, fine, done }) => {
    if (page.ticket !== ticket) return false;
    const count = (number) => number.toLocaleString("en");
    if (!done) {
      host.replaceChildren(title("The best plans of as many GPUs"), make("p", { className: "note" }, `${count(tried)} plans tried ..`));
      return true;
    }
    const rows = plans.slice(0, BEST).map(({ plan, time, memory }) => [
      button(planText(plan, offered), () => {
        page.state.set(Object.fromEntries(Object.entries(plan).filter(([name]) => offered.has(name))));
      }),
      shown(page, "step_time", time), shown(page, "peak_memory", memory),
    ]);
    const all = `${count(fine)} of ${count(tried)} plans can run in ${percentText(among.threshold, 0)} of the memory`;
    host.replaceChildren(
      title("The best plans of as many GPUs"),
      make("p", { className: "note" }, rows.length
        ? `${all}: of each split the fastest, all else as it is set. \`sweeps plan\` tries more, and says why.`
        : `None of ${count(tried)} plans runs in ${percentText(among.threshold, 0)} of the memory.`),
      ...(rows.length ? [table(["plan", "step", "memory"], rows)] : []),
    );
    return true;
  });
}

// A plan in words; what is as everywhere is left out.
function planText(plan, offered) {
  const words = [["tp", "tp"], ["cp", "cp"], ["pp", "pp"], ["ep", "ep"]].filter(([name]) => plan[name] > 1);
  const found = words.map(([name, text]) => `${text} ${plan[name]}`);
  found.push(`dp ${plan.dp}`);
  if (plan.virtual_pipeline_size > 1) found.push(`${plan.virtual_pipeline_size} chunks`);
  found.push(`micro-batch ${plan.micro_batch_size}`);
  if (offered.has("zero_stage")) found.push(`ZeRO ${plan.zero_stage}`);
  if (plan.recompute !== "none") found.push(`recompute ${plan.recompute}`);
  return found.join(", ");
}

const shown = (page, name, value) => {
  const { units, percent } = page.units.get(name);
  if (Number.isNaN(value)) return "–";
  if (units === "FLOP s-1") return `${numberText(value / 1e12, 4)} TFLOP/s`;
  if (units === "s" && value >= 86400) return `${numberText(value / 86400, 4)} days`;
  if (units === "d") return `${numberText(value)} days`;
  return percent ? percentText(value) : valueText(value, units === "s-1" ? "1" : units);
};

function answer(page, chosen, found) {
  const strong = (name, value = found.would(name)) => make("strong", {}, shown(page, name, value));
  const say = (...words) => make("p", { className: "answer" }, ...words);
  if (!found.can) {
    const why = found.reasons.filter((one) => one.name !== "does_not_fit");
    return [
      say(make("strong", { className: "alarm" }, "There is no such plan.")),
      ...why.map((one) => make("p", {}, `${one.text}.`)),
    ];
  }
  const band = (...ends) => bandText(...ends.map((one) => found.would(one)));
  const [peak, capacity] = [found.would("peak_memory"), valueText(chosen.memory_capacity, "byte (GB)")];
  const verb = found.fits ? "takes" : "would take";
  const unknown = found.status & page.data.faults.find((one) => one.name === page.data.lacks).bit;
  const time = Number.isNaN(found.would("step_time")) && unknown ? say(
    make("strong", { className: "alarm" }, "How long a step takes isn't known"), ": the machine's file lacks a figure.",
  ) : say(
    `A step ${verb} `, strong("step_time"), band("error_band_low", "error_band_high"), ": MFU ", strong("mfu"), ", ",
    `${Math.round(found.would("tokens_per_second")).toLocaleString("en")} tokens/s on `,
    `${found.would("world_size").toLocaleString("en")} GPUs.`,
  );
  const memory = [strong("peak_memory", peak), band("memory_error_band_low", "memory_error_band_high"), ` of a GPU's ${capacity}`];
  const risk = found.would("memory_state") === 1;
  const fit = found.fits ? say(risk ? "It fits, at risk: " : "It fits: ", ...memory, ".")
    : say(make("strong", { className: "alarm" }, "It doesn't fit: "), ...memory, ".");
  const more = [];
  const run = Number.isNaN(found.would("goodput")) ? [] : [make("p", {},
    `MTBF ${shown(page, "mean_time_between_failures", found.would("mean_time_between_failures"))}, `,
    `goodput ${shown(page, "goodput", found.would("goodput"))}.`)];
  for (const [name, words] of [["step_energy", "energy per step"],
    ["cost_per_trillion_tokens", "a trillion tokens cost"], ["training_days", "the training takes"],
    ["run_days", "with failures"], ["run_cost", "and costs"]]) {
    const value = found.would(name);
    if (!Number.isNaN(value)) more.push(`${words} ${shown(page, name, value)}`);
  }
  const said = more.length ? [make("p", {}, `${capital(more.join(", "))}.`)] : [];
  return found.fits ? [time, fit, ...said, ...run] : [fit, time];
}

function bars(page, id, title, units, parts, rows, limits = []) {
  const made = rows((one) => parts.map(([name]) => one.would(name)), (one) => {
    return shown(page, id === "step" ? "step_time" : "peak_memory",
      one.would(id === "step" ? "step_time" : "peak_memory"));
  });
  figure(id, title, made, parts, units, limits);
}

function communication(page, rows) {
  const { dimensions } = page.data.parts;
  const made = rows((one) => dimensions.map(([name]) => one.would(`${name}_communication_time`)),
    (one) => shown(page, "step_time", one.would("communication_upper_bound")));
  figure("communication", "Communication time, before overlap", made,
    dimensions, "s", []);
}

// A bar for each row; only parts, [name, words, colour], that a row has are named.
function figure(id, title, rows, parts, units, limits) {
  at(`${id}-title`).textContent = rows.length ? title : "";
  const host = at(`${id}-figure`);
  if (!rows.length) {
    host.replaceChildren();
    return;
  }
  const below = belowText(rows.map((row) => row.values), parts.map(([, words]) => words));
  rows = rows.map((row) => ({ ...row, values: folded(row.values) }));
  const some = parts.map((_, place) => rows.some((row) => row.values[place] > 0));
  const kept = (list) => list.filter((_, place) => some[place]);
  drawBars(host, {
    rows: rows.map((row) => ({ ...row, values: kept(row.values) })), units, limits, label: title,
    parts: kept(parts.map(([, label, colour], place) => ({ label, colour: areaColour(colour ?? place) }))),
  });
  host.append(below);
}

function numbers(page, found, first, differs) {
  const parts = new Set([...page.data.parts.step, ...page.data.parts.memory].map(([name]) => name));
  const lines = page.data.outputs.filter(({ name }) => !parts.has(name) && name !== "status" && name !== "left_out")
    .filter(({ name }) => !Number.isNaN(found.would(name)) && !/^(\w+)_communication_/.test(name))
    .map(({ name, title }) => [
      title, shown(page, name, found.would(name)),
      ...(differs ? [shown(page, name, first.would(name))] : []),
    ]);
  const sent = page.data.parts.dimensions.map(([name, words]) => {
    const each = (part) => `${name}_communication_${part}`;
    return [words, ...["count", "volume", "time", "energy"].map((part) => {
      return shown(page, each(part), found.would(each(part)));
    })];
  }).filter((row) => row[3] !== "–" && !row[3].startsWith("0 "));
  at("compare").replaceChildren(
    make("h2", {}, "Numbers"),
    lines.length ? table(["", "now", ...(differs ? ["at the start"] : [])], lines) : "none, for there is no such plan",
    ...(sent.length ? [make("h2", {}, "Communication time, before overlap"),
      table(["", "messages", "most bytes a rank sends", "time", "energy"], sent)] : []),
  );
}

function help(page, chosen, found) {
  const ways = helping(page.data, chosen);
  const box = at("best");
  const kept = page.found ? [page.found] : [];
  if (!ways.length) {
    box.replaceChildren(...kept);
    return;
  }
  const rows = ways.map(({ one, value, then }) => {
    const take = button(`${one.title} ${value}`, () => page.state.set({ [one.name]: value }));
    return [take, shown(page, "step_time", then.value("step_time")),
      shown(page, "peak_memory", then.value("peak_memory"))];
  });
  const title = found.reasons.length ? "One change makes it possible" : "One change makes it faster";
  box.replaceChildren(make("h2", {}, title), table(["change", "step", "memory"], rows), ...kept);
}

// Controls: each is a function that puts what is chosen where it is seen.
function controlsOf(page) {
  const { data, state } = page;
  const host = at("controls");
  const dials = [];
  for (const [group, title] of Object.entries(GROUPS)) {
    const own = [...data.controls, ...data.labels].filter((one) => one.group === group);
    if (!own.length) continue;
    host.append(make("h2", {}, title));
    for (const one of own) {
      const dial = dialOf(page, one);
      const only = one.only ? `; on this network ${one.values.join(", ")}` : "";
      dial.element.title = `${one.meaning}${only}${one.origin ? ` [${one.origin}]` : ""}`;
      host.append(dial.element);
      dials.push(dial.put);
    }
  }
  host.append(button("Back to the start", () => state.set(startOf(data))));
  return dials;
}

function dialOf(page, one) {
  if (!one.along) return listed(page, one);
  if (one.steps) return one.values.length === 2 ? switched(page, one) : stepper(page, one);
  return sliding(page, one);
}

const textOf = (one, value) => (Number.isNaN(value) ? "" : givenText(value, one.units, 6));

// A number that the reader types.
function typed(page, one, element) {
  const input = make("input", { type: "text", "aria-label": one.title });
  input.onchange = () => {
    const text = input.value.trim();
    const value = text ? readNumber(text, one.units) : NaN;
    const fine = text ? value === limited(one, value) : Number.isNaN(startOf(page.data)[one.name]);
    input.setAttribute("aria-invalid", !fine);
    if (fine) page.state.set({ [one.name]: one.whole ? Math.round(value) : value });
  };
  element.put = (value) => {
    if (document.activeElement !== input) input.value = textOf(one, value);
    input.setAttribute("aria-invalid", "false");
  };
  return input;
}

function stepper(page, one) {
  const box = {};
  const input = typed(page, one, box);
  const step = (up) => () => page.state.set({ [one.name]: stepped(one, page.state[one.name], up) });
  const less = button("−", step(false));
  const more = button("+", step(true));
  less.setAttribute("aria-label", `${one.title}: less`);
  more.setAttribute("aria-label", `${one.title}: more`);
  const element = make("div", { className: "stepper" }, make("span", {}, one.title), less, input, more);
  const put = (chosen) => {
    const value = chosen[one.name];
    box.put(value);
    less.disabled = stepped(one, value, false) === value;
    more.disabled = stepped(one, value, true) === value;
  };
  return { element, put };
}

function sliding(page, one) {
  const box = {};
  const input = typed(page, one, box);
  const [low, high] = one.values;
  const [turn, back] = one.log ? [Math.log, Math.exp] : [(x) => x, (x) => x];
  const range = make("input", { type: "range", min: 0, max: 1000, step: 1, "aria-label": one.title });
  range.oninput = () => {
    const share = Number(range.value) / 1000;
    const value = back(turn(low) + share * (turn(high) - turn(low)));
    const plain = one.whole ? value : Number(value.toPrecision(3));
    page.state.set({ [one.name]: snapped(page.data, chosenOf(page), one, plain) });
  };
  const element = make("div", { className: "sliding" }, make("span", {}, one.title), input, range);
  const put = (chosen) => {
    const value = chosen[one.name];
    box.put(value);
    const share = (turn(value) - turn(low)) / (turn(high) - turn(low));
    if (document.activeElement !== range) range.value = Number.isNaN(share) ? 0 : 1000 * share;
    range.setAttribute("aria-valuetext", textOf(one, value));
    for (const each of [input, range]) each.disabled = !isHeeded(page.data, chosen, one);
  };
  return { element, put };
}

function switched(page, one) {
  const element = buttons(one.title, [[0, "off"], [1, "on"]], page.state[one.name],
    (value) => page.state.set({ [one.name]: value }));
  return { element, put: (chosen) => element.put(chosen[one.name]) };
}

function listed(page, one) {
  const options = one.values.filter((value) => !one.lacking.includes(value));
  const element = choice(one.title, options.map((value) => [value, value]), options[0],
    (value) => page.state.set({ [one.name]: value }));
  return { element, put: (chosen) => element.put(chosen[one.name]) };
}

function about(page) {
  const [head, ...lines] = page.data.assumed;
  const command = make("code", {});
  page.dials.push((chosen) => {
    command.textContent = commandOf(page.data, chosen);
  });
  at("about").replaceChildren(
    make("h2", {}, "The same numbers on the command line"), make("p", {}, command),
    ...(head ? [make("details", {}, make("summary", {}, head), make("pre", {}, lines.join("\n")))] : []),
  );
}
