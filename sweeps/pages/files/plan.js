// A plan in a page: what its reader picks and sets, and what the page's formulas make of it.

const SEARCHED = ["tp", "cp", "pp", "ep", "dp", "virtual_pipeline_size", "micro_batch_size", "zero_stage", "sequence_parallel",
  "schedule", "recompute"];
const STARTS = new Map();

// The place of the picked model or machine among those of the page.
function placeOf(data, chosen, kind) {
  return Math.max(data.picks[kind].names.indexOf(chosen[kind]), 0);
}

// All numbers with the picked model and machine, before anything is set.
function numbersOf(data, chosen) {
  const number = (value) => Number(value ?? NaN);
  const numbers = new Map(data.inputs.map(([name, value]) => [name, number(value)]));
  for (const [kind, { columns }] of Object.entries(data.picks)) {
    const index = placeOf(data, chosen, kind);
    for (const [name, column] of Object.entries(columns)) numbers.set(name, number(column[index]));
  }
  return numbers;
}

// What is chosen, by name, where nothing is set: picked names, numbers of controls, texts of labels.
function startOf(data, chosen = {}) {
  const pair = Object.keys(data.picks).map((kind) => placeOf(data, chosen, kind)).join();
  if (STARTS.has(pair)) return { ...STARTS.get(pair) };
  const numbers = numbersOf(data, chosen);
  const start = {};
  for (const [kind, { names }] of Object.entries(data.picks)) start[kind] = names[placeOf(data, chosen, kind)];
  for (const { name } of data.controls) start[name] = numbers.get(name) ?? NaN;
  for (const { name, values } of data.labels) start[name] = values[numbers.get(name)];
  STARTS.set(pair, start);
  return { ...start };
}

// The controls and labels that the picked model has: without experts none of theirs.
function offeredOf(data, chosen) {
  const numbers = numbersOf(data, chosen);
  return [...data.controls, ...data.labels].filter(({ needs }) => !needs || !(numbers.get(needs) <= 0));
}

// The values of a label for which the picked machine lacks a figure.
function lackingOf(data, chosen, name) {
  return data.picks.hardware.lacking[placeOf(data, chosen, "hardware")][name] ?? [];
}

// What is chosen once another model or machine is picked: what was set stays, all else is its own.
function repicked(data, chosen, kind, name) {
  const next = { ...chosen, [kind]: name };
  const known = new Set(offeredOf(data, next).map((control) => control.name));
  const kept = changedOf(data, chosen)
    .filter((control) => known.has(control.name) && !lackingOf(data, next, control.name).includes(chosen[control.name]));
  return { ...startOf(data, next), ...Object.fromEntries(kept.map((control) => [control.name, chosen[control.name]])) };
}

// Whether a control counts: a share that hides doesn't where a mechanism says what does.
function isHeeded(data, chosen, control) {
  return !control.mechanism || (chosen[control.mechanism] ?? "efficiency") === "efficiency";
}

// What differs from the start, as the names of controls and labels.
function changedOf(data, chosen) {
  const first = startOf(data, chosen);
  return offeredOf(data, chosen).filter((control) => {
    const same = Object.is(chosen[control.name], first[control.name]);
    return !same && (control.values.includes(chosen[control.name]) || isHeeded(data, chosen, control));
  });
}

// The numbers that formulas take: what is set brings along what follows from it.
function inputsOf(data, chosen) {
  const numbers = numbersOf(data, chosen);
  for (const control of changedOf(data, chosen)) {
    if (!control.along) {
      numbers.set(control.name, control.values.indexOf(chosen[control.name]));
      if (control.settles) numbers.set(data.unknown, numbers.get(data.unknown) - 1);
      continue;
    }
    const value = chosen[control.name];
    numbers.set(control.name, value);
    for (const [name, number] of Object.entries(control.along)) numbers.set(name, number ?? value);
  }
  const domain = data.picks.hardware.domains[placeOf(data, chosen, "hardware")];
  if (domain) {
    // A job takes the most GPUs of each domain that divide its own.
    const { most, shares, degrees } = domain;
    const gpus = Object.entries(degrees).reduce((all, [name, degree]) => all * (chosen[name] ?? degree), 1);
    let taken = Math.min(most, Math.max(Math.floor(gpus), 1));
    while (taken > 1 && gpus % taken !== 0) taken -= 1;
    for (const [name, share] of Object.entries(shares)) numbers.set(name, share * taken);
  }
  return Float64Array.from(numbers.values());
}

// Everything that follows from what is chosen: value(name), NaN where it isn't; would(name), also
// of a plan that doesn't fit; reasons why the plan can't be.
function computed(data, chosen) {
  const outputs = new Float64Array(data.outputs.length);
  program(inputsOf(data, chosen), outputs);
  const places = new Map(data.outputs.map((output, index) => [output.name, index]));
  const status = outputs[places.get("status")];
  const reasons = data.faults.filter((fault) => status & fault.bit && !fault.note);
  const fit = data.faults.find((fault) => fault.name === "does_not_fit").bit;
  const masked = (name, bits) => {
    const index = places.get(name);
    if (index === undefined) return NaN;
    return bits & data.outputs[index].mask ? NaN : outputs[index];
  };
  return {
    status, reasons, fits: !(status & fit), can: reasons.every((fault) => fault.bit === fit),
    value: (name) => masked(name, status), would: (name) => masked(name, status & ~fit),
  };
}

// What a control's number can be nearest to a number: whole, and a batch one that divides.
function snapped(data, chosen, control, value) {
  if (!control.whole || Number.isNaN(value)) return value;
  const degree = (name) => chosen[name] ?? 1;
  let step = 1;
  if (control.name === "sequence_length") step = value >= 4096 ? 1024 : 256;
  if (control.name === "global_batch_size" || control.name === "tokens_per_step") {
    const dp = "dp" in chosen ? chosen.dp : degree("world_size") / (degree("tp") * degree("cp") * degree("pp"));
    step = Math.max(Math.floor(dp), 1) * degree("micro_batch_size");
    if (control.name === "tokens_per_step") step *= degree("sequence_length");
  }
  return Math.max(Math.round(value / step), 1) * step;
}

// The next value of a control that goes in steps.
function stepped(control, value, up) {
  const further = control.values.filter((step) => (up ? step > value : step < value));
  if (!further.length) return value;
  return up ? Math.min(...further) : Math.max(...further);
}

// Plans of as many GPUs, one after another: the splits, and what is chosen beside them.
function* candidates(data, chosen) {
  const { search } = data;
  const offered = new Map(offeredOf(data, chosen).map((control) => [control.name, control]));
  const numbers = numbersOf(data, chosen);
  const [layers, heads] = ["layers", "heads"].map((name) => numbers.get(name) ?? search[name] ?? Infinity);
  const stepsOf = (name) => offered.get(name)?.values ?? [1];
  const known = (name) => search[name].filter((value) => !lackingOf(data, chosen, name).includes(value));
  const [schedules, recomputes] = [known("schedule"), known("recompute")];
  const world = chosen.world_size ?? ["dp", "tp", "cp", "pp"].reduce((all, name) => all * (chosen[name] ?? 1), 1);
  const zeros = offered.has("zero_stage") ? search.zero : [undefined];
  for (const tp of stepsOf("tp")) for (const cp of stepsOf("cp")) for (const pp of stepsOf("pp")) {
    const dp = world / (tp * cp * pp);
    if (!Number.isInteger(dp) || tp > heads) continue;
    for (const schedule of pp > 1 ? schedules : schedules.slice(0, 1)) {
      const cut = search.chunked.includes(schedule);
      for (const ep of stepsOf("ep")) for (const virtual_pipeline_size of stepsOf("virtual_pipeline_size")) {
        if (virtual_pipeline_size > 1 !== (cut && pp > 1)) continue;
        // With more chunks there are too few layers, and with more ranks too few heads.
        if (pp * virtual_pipeline_size > layers + 2) continue;
        for (const micro_batch_size of stepsOf("micro_batch_size")) {
          if (chosen.global_batch_size % (dp * micro_batch_size)) continue;
          for (const zero_stage of zeros) for (const recompute of recomputes) {
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
  const first = startOf(data, chosen);
  const names = data.inputs.map(([name]) => name);
  const unknown = names.indexOf(data.unknown);
  const searched = new Map(offeredOf(data, chosen).map((control) => [control.name, control]));
  const base = inputsOf(data, { ...chosen, ...Object.fromEntries(
    SEARCHED.filter((name) => searched.has(name)).map((name) => [name, first[name]])) });
  const dials = SEARCHED.filter((name) => searched.has(name)).map((name) => {
    const control = searched.get(name);
    const along = Object.entries(control.along ?? {}).map(([other, number]) => [names.indexOf(other), number]);
    return { name, control, index: names.indexOf(name), along };
  });
  const places = new Map(data.outputs.map(({ name }, index) => [name, index]));
  const [time, memory] = [places.get("step_time"), places.get("peak_memory")];
  const [status, left] = [places.get("status"), places.get("left_out")];
  const { mask } = data.outputs[time];
  const [numbers, outputs] = [new Float64Array(base.length), new Float64Array(places.size)];
  return (plan) => {
    numbers.set(base);
    for (const { name, control, index, along } of dials) {
      const value = plan[name];
      if (value === first[name]) continue;
      numbers[index] = control.along ? value : control.values.indexOf(value);
      if (control.settles) numbers[unknown] -= 1;
      for (const [other, number] of along) numbers[other] = number ?? value;
    }
    program(numbers, outputs);
    return outputs[status] & mask || outputs[left] ? null : [outputs[time], outputs[memory]];
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
      const result = compute(plan);
      tried += 1;
      if (result) {
        fine += 1;
        const split = `${plan.tp},${plan.cp},${plan.pp},${plan.ep}`;
        if (!(best.get(split)?.time <= result[0])) best.set(split, { plan, time: result[0], memory: result[1] });
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
  for (const [kind, { names, flag }] of Object.entries(data.picks)) {
    if (chosen[kind] !== names[0]) flags.set(kind, [flag, chosen[kind]]);
  }
  const changed = changedOf(data, chosen);
  for (const control of changed) flags.set(control.name, [control.flag, String(chosen[control.name])]);
  // Of a number from which a label would follow that label is said, too.
  for (const { name, flag, follows } of data.labels) {
    if (changed.some((control) => control.name === follows)) flags.set(name, [flag, chosen[name]]);
  }
  const quoted = (text) => (/^[\w.:\/+-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
  return ["sweeps analysis", ...[...flags.values()].map(([flag, text]) => `${flag} ${quoted(text)}`)].join(" ");
}
