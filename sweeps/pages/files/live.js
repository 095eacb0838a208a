// The live page: pickers of model and machine, the answer, controls, figures and tables.

const GROUPS = { plan: "Plan", work: "Work", overlap: "Overlap", machine: "Machine", money: "Money",
  failures: "Interruptions" };
const PICKED = { model: "Model", hardware: "Machine" };
const FITS = ["alarm", "risk", "fits"];
const BEST = 8;

function start(data) {
  const fields = {};
  for (const [kind, { names }] of Object.entries(data.picks)) {
    fields[kind] = { initial: names[0], write: String, read: (text) => (names.includes(text) ? text : undefined) };
  }
  // The others begin as the picked ones have it.
  for (const control of data.controls) {
    fields[control.name] = {
      initial: (state) => startOf(data, state)[control.name], write: String,
      read: (text) => {
        const value = text === "" ? NaN : limited(control, Number(text));
        return Number.isFinite(value) ? value : undefined;
      },
    };
  }
  for (const { name, values } of data.labels) {
    fields[name] = {
      initial: (state) => startOf(data, state)[name], write: String,
      read: (text, entry, state) => (values.includes(text) && !lackingOf(data, state, name).includes(text) ? text : undefined),
    };
  }
  const page = { data, units: new Map(data.outputs.map((output) => [output.name, output])), title: region("title").textContent };
  page.state = makeState(fields, () => draw(page));
  document.body.classList.add("live");
  region("figure").before(region("controls"));  // The keys go through them in the order in which a phone has them
  page.dials = [...pickers(page), ...controlsOf(page)];
  about(page);
  redrawn(() => draw(page));
  draw(page);
}

function limited(control, value) {
  // On another number of chips the network is another one, of which there are no formulas here.
  if (control.only && !control.values.includes(value)) return NaN;
  const least = Math.min(control.values[0], control.log ? 0 : Infinity);
  const most = control.name.endsWith("_overlap") || control.name === "zero_stage"
    || control.name === "sequence_parallel" ? control.values[control.values.length - 1] : Infinity;
  return Math.min(Math.max(value, least), most);
}

function chosenOf({ data, state }) {
  const names = [...data.controls, ...data.labels].map(({ name }) => name);
  return Object.fromEntries([...Object.keys(data.picks), ...names].map((name) => [name, state[name]]));
}

function draw(page) {
  const { data } = page;
  const chosen = chosenOf(page);
  const result = computed(data, chosen);
  const first = startOf(data, chosen);
  const unpicked = Object.keys(data.picks).every((kind) => !placeOf(data, chosen, kind));
  region("title").textContent = unpicked ? page.title : `Step time and memory of ${chosen.model} on ${chosen.hardware}`;
  document.title = region("title").textContent;
  for (const dial of page.dials) dial(chosen, unpicked);
  fill("answer", ...answer(page, chosen, result));
  const began = computed(data, first);
  const differs = changedOf(data, chosen).length > 0;
  drawn(page, chosen, [["now", result], ...(differs && began.can ? [["at the start", began]] : [])]);
  clearTimeout(page.later);
  page.ticket = null;
  page.later = setTimeout(() => {
    numbers(page, result, began, differs);
    page.later = setTimeout(() => best(page, chosen), 240);
  }, 60);
}

// Bars of the plan, and of that at the start; none where there is no such plan.
function drawn(page, chosen, plans) {
  const { parts } = page.data;
  const figures = region("figure");
  if (!plans[0][1].can) {
    figures.replaceChildren();
    return;
  }
  if (!figures.childElementCount) {
    for (const name of ["step", "memory", "communication", "run"]) {
      figures.append(make("h2", { id: `${name}-title` }), make("div", { id: `${name}-figure` }));
    }
  }
  const rows = (names, text, total, ends = []) => plans
    .map(([name, plan]) => ({
      name, values: names.map(([part]) => plan.would(part)), text: shown(page, text, plan.would(total)),
      ends: ends.map((end) => plan.would(total) * (1 + plan.would(end))),
    }))
    .filter((row) => row.values.some((value) => value > 0));
  const { step, memory, dimensions, run } = parts;
  figure("step", "Step time", rows(step, "step_time", "step_time", ["error_band_low", "error_band_high"]), step, "s", []);
  figure("memory", "Peak memory per GPU",
    rows(memory, "peak_memory", "peak_memory", ["memory_error_band_low", "memory_error_band_high"]), memory, "byte (GB)",
    [{ value: chosen.memory_capacity, label: "capacity" }]);
  const sent = dimensions.map(([name, ...rest]) => [`${name}_communication_time`, ...rest]);
  figure("communication", "Communication time, before overlap", rows(sent, "step_time", "communication_upper_bound"), sent, "s", []);
  const shares = rows(run, "goodput", "goodput").map((row) => ({
    ...row, values: row.values.map((value) => 100 * value), text: `${row.text} goodput`,
  }));
  figure("run", "Run time with failures", shares, run, "%", []);
}

// What a search among plans finds, while it is at work and after.
function best(page, chosen) {
  const ticket = (page.ticket = {});
  const { search: among } = page.data;
  const offered = new Set(offeredOf(page.data, chosen).map((control) => control.name));
  const host = make("div", { id: "search" });
  fill("best", host);
  const title = (text) => make("h2", {}, text);
  search(page.data, chosen, ({ plans, tried, fine, done }) => {
    if (page.ticket !== ticket) return false;
    if (!done) {
      host.replaceChildren(title("The best plans of as many GPUs"), note(`${grouped(tried)} plans tried ..`));
      return true;
    }
    const rows = plans.slice(0, BEST).map(({ plan, time, memory }) => [
      button(planText(plan, offered), () => {
        page.state.set(Object.fromEntries(Object.entries(plan).filter(([name]) => offered.has(name))));
      }),
      shown(page, "step_time", time), shown(page, "peak_memory", memory),
    ]);
    const all = `${grouped(fine)} of ${grouped(tried)} plans can run in ${percentText(among.threshold, 0)} of the memory`;
    host.replaceChildren(
      title("The best plans of as many GPUs"),
      note(rows.length
        ? `${all}: of each split the fastest, all else as it is set. \`sweeps plan\` tries more, and says why.`
        : `None of ${grouped(tried)} plans runs in ${percentText(among.threshold, 0)} of the memory.`),
      ...(rows.length ? [table(["plan", "step", "memory"], rows)] : []),
    );
    return true;
  });
}

// A plan in words; what is as everywhere is left out.
function planText(plan, offered) {
  const words = [["tp", "tp"], ["cp", "cp"], ["pp", "pp"], ["ep", "ep"]].filter(([name]) => plan[name] > 1);
  const phrases = words.map(([name, text]) => `${text} ${plan[name]}`);
  phrases.push(`dp ${plan.dp}`);
  if (plan.virtual_pipeline_size > 1) phrases.push(`${plan.virtual_pipeline_size} chunks`);
  phrases.push(`micro-batch ${plan.micro_batch_size}`);
  if (offered.has("zero_stage")) phrases.push(`ZeRO ${plan.zero_stage}`);
  if (plan.recompute !== "none") phrases.push(`recompute ${plan.recompute}`);
  return phrases.join(", ");
}

// Times that are said in days, as the guide and the reports say them.
const inDays = (units, value) => units === "s" && value >= 86400;

const shown = (page, name, value) => {
  const { units, percent } = page.units.get(name);
  if (Number.isNaN(value)) return "–";
  if (inDays(units, value)) return `${numberText(value / 86400, 4)} days`;
  if (units === "FLOP s-1") return `${numberText(value / 1e12, 4)} TFLOP/s`;
  if (units === "d") return `${numberText(value)} days`;
  return percent ? percentText(value) : valueText(value, units === "s-1" ? "1" : units);
};

function answer(page, chosen, result) {
  const strong = (name, value = result.would(name)) => make("strong", {}, shown(page, name, value));
  if (!result.can) {
    const why = result.reasons.filter((fault) => fault.name !== "does_not_fit");
    return [
      said(make("strong", { className: "alarm" }, "There is no such plan.")),
      ...why.map((fault) => make("p", { className: "why" }, `${fault.text}.`)),
    ];
  }
  const band = (...ends) => bandText(...ends.map((end) => result.would(end)));
  const [peak, capacity] = [result.would("peak_memory"), valueText(chosen.memory_capacity, "byte (GB)")];
  const verb = result.fits ? "takes" : "would take";
  const unknown = result.status & page.data.faults.find((fault) => fault.name === page.data.lacks).bit;
  const time = Number.isNaN(result.would("step_time")) && unknown ? said(
    make("strong", { className: "alarm" }, "How long a step takes isn't known"), ": the machine's file lacks a figure.",
  ) : said(
    `A step ${verb} `, strong("step_time"), band("error_band_low", "error_band_high"), ": MFU ", strong("mfu"), ", ",
    `${grouped(Math.round(result.would("tokens_per_second")))} tokens/s on `,
    `${grouped(result.would("world_size"))} GPUs.`,
  );
  const state = result.would("memory_state");
  const over = state === 1 && result.would("peak_memory") > chosen.memory_capacity;
  const words = page.data.fit[over ? 3 : state];
  const verdict = Number.isNaN(state) ? [] : [": ", make("strong", { className: FITS[state] }, words)];
  const fit = said("Memory ", strong("peak_memory", peak), band("memory_error_band_low", "memory_error_band_high"),
    ` of ${capacity} per GPU`, ...verdict, ".");
  const more = [];
  const run = Number.isNaN(result.would("goodput")) ? [] : [make("p", {},
    `MTBF ${shown(page, "mean_time_between_failures", result.would("mean_time_between_failures"))}, `,
    `goodput ${shown(page, "goodput", result.would("goodput"))}.`)];
  for (const [name, words] of [["step_energy", "energy per step"],
    ["cost_per_trillion_useful_tokens", "a trillion tokens with failures and spares cost"], ["training_days", "the training takes"],
    ["run_days", "with failures"], ["run_cost", "and costs"]]) {
    const value = result.would(name);
    if (!Number.isNaN(value)) more.push(`${words} ${shown(page, name, value)}`);
  }
  const besides = more.length ? [make("p", {}, `${capital(more.join(", "))}.`)] : [];
  return result.fits ? [time, fit, ...besides, ...run] : [fit, time];
}

// A bar for each row; only parts, [name, words, colour], that a row has are named.
function figure(id, title, rows, parts, units, limits) {
  region(`${id}-title`).textContent = rows.length ? title : "";
  const host = region(`${id}-figure`);
  if (!rows.length) {
    host.replaceChildren();
    return;
  }
  const below = belowText(rows.map((row) => row.values), parts.map(([, words]) => words));
  rows = rows.map((row) => ({ ...row, values: folded(row.values) }));
  const some = parts.map((_, index) => rows.some((row) => row.values[index] > 0));
  const kept = (list) => list.filter((_, index) => some[index]);
  drawBars(host, {
    rows: rows.map((row) => ({ ...row, values: kept(row.values) })), units, limits, label: title,
    parts: kept(parts.map(([, label, colour], index) => ({ label, colour: areaColour(colour ?? index) }))),
  });
  host.append(below);
}

function numbers(page, result, first, differs) {
  const parts = new Set([...page.data.parts.step, ...page.data.parts.memory].map(([name]) => name));
  const lines = page.data.outputs.filter(({ name }) => !parts.has(name) && !["status", "left_out", "memory_state"].includes(name))
    .filter(({ name }) => !Number.isNaN(result.would(name)) && !/^(\w+)_communication_/.test(name))
    .map(({ name, title }) => [
      title, shown(page, name, result.would(name)),
      ...(differs ? [shown(page, name, first.would(name))] : []),
    ]);
  const sent = page.data.parts.dimensions.map(([name, words]) => {
    const each = (part) => `${name}_communication_${part}`;
    return [words, ...["volume", "time", "energy"].map((part) => {
      return shown(page, each(part), result.would(each(part)));
    })];
  }).filter((row) => row[2] !== "–" && !row[2].startsWith("0 "));
  fill("compare",
    make("h2", {}, "Numbers"),
    lines.length && result.can ? table(["", "now", ...(differs ? ["at the start"] : [])], lines) : note("None: there is no such plan."),
    ...(sent.length && result.can ? [make("h2", {}, "Communication time, before overlap"),
      table(["", "most bytes a rank sends", "time", "energy"], sent)] : []),
  );
}

// Lists of the models and machines that are in the page.
function pickers(page) {
  const { data, state } = page;
  return Object.entries(data.picks).filter(([, { names }]) => names.length > 1).map(([kind, { names }]) => {
    const options = names.map((name) => [name, name]).sort(([first], [second]) => first.localeCompare(second, "en"));
    const element = choice(PICKED[kind], options, state[kind],
      (name) => state.set(repicked(data, chosenOf(page), kind, name)));
    region("pickers").append(element);
    return (chosen) => element.put(chosen[kind]);
  });
}

// Controls: each is a function that puts what is chosen where it is seen.
function controlsOf(page) {
  const { data, state } = page;
  const host = region("controls");
  const dials = [];
  const narrow = window.innerWidth <= 860;
  for (const [group, title] of Object.entries(GROUPS)) {
    const members = [...data.controls, ...data.labels].filter((control) => control.group === group);
    if (!members.length) continue;
    const box = make("details", { open: !narrow || group === "plan" }, make("summary", {}, make("h2", {}, title)));
    host.append(box);
    for (const control of members) {
      const { element, put } = dialOf(page, control);
      const only = control.only ? `; on this network ${control.values.join(", ")}` : "";
      box.append(element);
      dials.push((chosen, first) => {
        element.hidden = !offeredOf(data, chosen).includes(control);
        element.title = `${control.meaning}${only}${first && control.origin ? ` [${control.origin}]` : ""}`;
        put(chosen);
      });
    }
  }
  host.append(button("Back to the start", () => state.set(startOf(data))));
  return dials;
}

function dialOf(page, control) {
  if (!control.along) return listed(page, control);
  if (control.steps) return control.values.length === 2 ? switched(page, control) : stepper(page, control);
  return sliding(page, control);
}

const textOf = (control, value) => {
  if (Number.isNaN(value)) return "";
  return inDays(control.units, value) ? `${numberText(value / 86400, 6)} days` : givenText(value, control.units, 6);
};

// A number that the reader types.
function typed(page, control, element) {
  const input = make("input", { type: "text", "aria-label": control.title });
  input.onchange = () => {
    const text = input.value.trim();
    const value = text ? readNumber(text, control.units) : NaN;
    const fine = text ? value === limited(control, value) : Number.isNaN(startOf(page.data, page.state)[control.name]);
    input.setAttribute("aria-invalid", !fine);
    if (fine) page.state.set({ [control.name]: control.whole ? Math.round(value) : value });
  };
  element.put = (value) => {
    if (document.activeElement !== input) input.value = textOf(control, value);
    input.setAttribute("aria-invalid", "false");
  };
  return input;
}

function stepper(page, control) {
  const box = {};
  const input = typed(page, control, box);
  const step = (up) => () => page.state.set({ [control.name]: stepped(control, page.state[control.name], up) });
  const less = button("−", step(false));
  const more = button("+", step(true));
  less.setAttribute("aria-label", `${control.title}: less`);
  more.setAttribute("aria-label", `${control.title}: more`);
  const element = make("div", { className: "stepper" }, make("span", {}, control.title), less, input, more);
  const put = (chosen) => {
    const value = chosen[control.name];
    box.put(value);
    less.disabled = stepped(control, value, false) === value;
    more.disabled = stepped(control, value, true) === value;
  };
  return { element, put };
}

function sliding(page, control) {
  const box = {};
  const input = typed(page, control, box);
  const [low, high] = control.values;
  const [turn, back] = control.log ? [Math.log, Math.exp] : [(x) => x, (x) => x];
  const range = make("input", { type: "range", min: 0, max: 1000, step: 1, "aria-label": control.title });
  range.oninput = () => {
    const share = Number(range.value) / 1000;
    const value = back(turn(low) + share * (turn(high) - turn(low)));
    const plain = control.whole ? value : Number(value.toPrecision(3));
    page.state.set({ [control.name]: snapped(page.data, chosenOf(page), control, plain) });
  };
  const element = make("div", { className: "sliding" }, make("span", {}, control.title), input, range);
  const put = (chosen) => {
    const value = chosen[control.name];
    box.put(value);
    const share = (turn(value) - turn(low)) / (turn(high) - turn(low));
    if (document.activeElement !== range) range.value = Number.isNaN(share) ? 0 : 1000 * share;
    range.setAttribute("aria-valuetext", textOf(control, value));
    for (const each of [input, range]) each.disabled = !isHeeded(page.data, chosen, control);
  };
  return { element, put };
}

function switched(page, control) {
  const element = buttons(control.title, [[0, "off"], [1, "on"]], page.state[control.name],
    (value) => page.state.set({ [control.name]: value }));
  return { element, put: (chosen) => element.put(chosen[control.name]) };
}

function listed(page, control) {
  const element = choice(control.title, control.values.map((value) => [value, value]), control.values[0],
    (value) => page.state.set({ [control.name]: value }));
  const put = (chosen) => {
    const lacking = lackingOf(page.data, chosen, control.name);
    for (const option of element.querySelectorAll("option")) option.hidden = option.disabled = lacking.includes(option.value);
    element.put(chosen[control.name]);
  };
  return { element, put };
}

function about(page) {
  const { assumed: [head, ...lines], others } = page.data;
  const command = make("code", {});
  const assumed = head ? make("details", {}, make("summary", {}, head), make("pre", {}, lines.join("\n"))) : make("p");
  page.dials.push((chosen, first) => {
    command.textContent = commandOf(page.data, chosen);
    assumed.hidden = !first;
  });
  fill("about",
    make("h2", {}, "The same numbers on the command line"), make("p", {}, command), assumed,
    ...others.map((text) => note(text)),
  );
}
