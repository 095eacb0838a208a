// What formulas take that browsers haven't: numpy's functions, and loops over whole numbers.
"use strict";

const { abs, sqrt, exp, expm1, log, log1p, floor: F, ceil: C, max: M, min: L } = Math;

function mod(a, b) {
  const rest = a % b;
  return rest !== 0 && (rest < 0) !== (b < 0) ? rest + b : rest;
}

function div(a, b) {
  const whole = (a - mod(a, b)) / b;
  const low = F(whole);
  return whole - low > 0.5 ? low + 1 : low;
}

function power(base, exponent) {
  return base === 1 ? 1 : base ** exponent;
}

// Whole logarithms are exact.
function log2(x) {
  const near = Math.log2(x);
  const whole = Math.round(near);
  return 2 ** whole === x ? whole : near;
}

// Halves go to the even number.
function even(x) {
  const low = F(x);
  const rest = x - low;
  return rest < 0.5 || (rest === 0.5 && low % 2 === 0) ? low : low + 1;
}

function gcd(first, other) {
  let a = abs(Math.trunc(first));
  let b = abs(Math.trunc(other));
  if (!(a < Infinity && b < Infinity)) return NaN;
  while (b) [a, b] = [b, a % b];
  return a;
}

function popcount_sum(ranks) {
  let total = 0;
  for (let half = 1; half < ranks && half <= 2 ** 52; half *= 2) {
    const period = 2 * half;
    total += F(ranks / period) * half + M((ranks % period) - half, 0);
  }
  return total;
}

function square_divisor(number) {
  const whole = Math.trunc(number);
  for (let divisor = F(sqrt(whole)); divisor > 1; divisor -= 1)
    if (whole % divisor === 0) return divisor;
  return 1;
}

function power_sum(left, right, exponent) {
  const [first, second] = exponent < 0 === left < right ? [left, right] : [right, left];
  if (!(first > 0 && first < Infinity)) return first;
  return first * (1 + (second / first) ** exponent) ** (1 / exponent);
}

function never_drawn(total, marked, draws) {
  let share = 1;
  for (let drawn = 0; drawn < L(draws, total, 4096); drawn += 1)
    share *= M(total - marked - drawn, 0) / M(total - drawn, 1);
  return share;
}

// In which chunks the layers are, and of which kind: digits of base 4, 26 in a number, with places
// ahead.
function chunks_of_layers(chunk, ahead, numbers) {
  const layers = [];
  numbers.forEach((number, part) => {
    for (let [index, rest] = [26 * part, number]; rest > 0; [index, rest] = [index + 1, F(rest / 4)])
      if (rest % 4 > 0) layers.push([rest % 4, F((index + ahead) / M(chunk, 1))]);
  });
  return layers;
}

function layers_of_kind(kind, index, mirrored, period, chunk, ahead, ...numbers) {
  const layers = chunks_of_layers(chunk, ahead, numbers).filter(([code]) => code === kind || !kind);
  const places = layers.map(([, at]) => mod(at, period));
  const held = places.filter((stage) => stage === index).length;
  const other = places.filter((stage) => stage === period - 1 - index).length;
  return held + (mirrored > 0 ? other : 0);
}

// Stages between the ends that differ: attention and mixtures beyond the mean of layers.
function middle_stages(pp, turned, mirrored, chunk, ahead, ...numbers) {
  const [period, layers] = [pp * (1 + turned), chunks_of_layers(chunk, ahead, numbers)];
  const counts = (held) => [2, 3].map((kind) => held.filter((layer) => layer === kind).length);
  const whole = M(layers.length, 1);
  const means = counts(layers.map(([kind]) => kind)).map((count) => count / whole);
  const stages = [];
  for (let stage = 1; stage < (turned > 0 ? pp : pp - 1); stage += 1) {
    const kinds = [];
    for (const [kind, index] of layers) {
      const down = mod(index, period);
      const side = turned > 0 ? L(down, period - 1 - down) : down;
      if (side === stage) kinds.push(kind);
      if (mirrored > 0 && pp - 1 - side === stage) kinds.push(kind);
    }
    const beyond = counts(kinds).map((count, kind) => count - kinds.length * means[kind]);
    stages.push([stage, ...beyond.map((count) => count / (mirrored > 0 ? 2 : 1))]);
  }
  return stages.length ? stages : [[L(M(pp - 1, 0), 1), 0, 0]];
}

const known_stages = remembered(middle_stages);

function heaviest_stage(attention, mixture, ...cut) {
  let [best, heaviest] = [-Infinity, 0];
  for (const [stage, attending, mixed] of known_stages(...cut)) {
    const weight = attention * attending + mixture * mixed;
    if (weight > best) [best, heaviest] = [weight, stage];
  }
  return heaviest;
}

// MoE and attention layers of chunks beyond their layers' mean, as overhead/interleaved.py has it.
function chunks_beyond_mean(period, chunk, ahead, ...numbers) {
  const counts = Array.from({ length: period }, () => [0, 0, 0, 0]);
  const whole = [0, 0, 0, 0];
  for (const [kind, index] of chunks_of_layers(chunk, ahead, numbers))
    for (const code of [0, kind])
      [counts[mod(index, period)][code], whole[code]] = [counts[mod(index, period)][code] + 1, whole[code] + 1];
  const [layers, mixers] = [M(whole[0], 1), M(whole[0], 1) - whole[3]];
  return counts.map(([every, , attention, moe]) => {
    const more = moe - (every * whole[3]) / layers;
    const beyond = attention - (every * whole[2]) / layers + (more * whole[2]) / M(mixers, 1);
    return [more, (beyond * mixers) / M(whole[1], 1)];
  });
}

// When a pipeline of chunks' times is done, by Megatron-LM's order of passes, and what a further
// group of micro-batches adds.
function interleaved_run(pp, chunks, groups, times) {
  const [count, done] = [chunks * groups * pp, new Map()];
  const key = (way, stage, turn) => (way * pp + stage) * count + turn;
  const [at, end] = [Array(pp).fill(0), Array(pp).fill(0)];
  const pass = (stage) => {
    const ahead = L(2 * (pp - 1 - stage) + (chunks - 1) * pp, count);
    const [step, pairs] = [at[stage], 2 * (count - ahead)];
    if (step < ahead) return [0, step];
    if (step >= ahead + pairs) return [1, step - count];
    const [turn, way] = [F((step - ahead) / 2), (step - ahead) % 2];
    return [way, way ? turn : turn + ahead];
  };
  const needed = (way, stage, turn) => {
    const row = F(turn / pp) % chunks;
    if (way === 0) return stage ? key(0, stage - 1, turn) : row ? key(0, pp - 1, turn - pp) : -1;
    if (stage < pp - 1) return key(1, stage + 1, turn);
    return row ? key(1, 0, turn - pp) : key(0, stage, turn + (chunks - 1) * pp);
  };
  for (let left = 2 * count * pp; left > 0; )
    for (let stage = 0; stage < pp; stage += 1)
      while (at[stage] < 2 * count) {
        const [way, turn] = pass(stage);
        const other = needed(way, stage, turn);
        if (other >= 0 && !done.has(other)) break;
        const row = F(turn / pp) % chunks;
        const chunk = (way ? 2 * chunks - 1 - row : row) * pp + stage;
        end[stage] = M(end[stage], other >= 0 ? done.get(other) : 0) + times[chunk];
        done.set(key(way, stage, turn), end[stage]);
        [at[stage], left] = [at[stage] + 1, left - 1];
      }
  const last = (stage, group) => done.get(key(0, stage, group * chunks * pp - 1)) ?? 0;
  const longest = end.map((_, stage) => {
    const total = times.filter((_, chunk) => chunk % pp === stage).reduce((sum, time) => sum + time, 0);
    return M(pp * total, groups > 1 ? last(stage, groups) - last(stage, groups - 1) : 0);
  });
  return [M(...end), M(...longest)];
}

function interleaved_time(count, pp, chunks, ...work) {
  const [forward, backward, first, last, lacking, ...layers] = work;
  const held = chunks_of_layers(1, 0, work.slice(11)).length;
  const known = pp > 1 && chunks > 1 && pp * chunks <= held && count >= pp;
  if (!(known && pp === F(pp) && chunks === F(chunks)))
    return (count + (pp - 1) / chunks) * (forward + backward);
  const both = forward + backward;
  const every = chunks_beyond_mean(pp * chunks, ...layers.slice(4));
  const times = [forward, backward].flatMap((time, way) =>
    every.map(([more, attention], chunk) => {
      const ends = (chunk ? 0 : first) - (chunk % pp === pp - 1 ? lacking / chunks : 0);
      const extra = ends + (chunk === pp * chunks - 1 ? last : 0);
      const even = time / chunks + (both > 0 ? extra / both : 0) * time;
      return M(even + more * layers[way] + attention * layers[2 + way], 0);
    }),
  );
  const least = L(M(F(count / pp), 1), 4);
  const [done, further] = interleaved_run(pp, chunks, least, times);
  return done + (count / pp - least) * further;
}

// The same for all of a cluster's plans: what was asked last is known.
function remembered(function_) {
  let [asked, answer] = [[], NaN];
  return (...args) => {
    if (args.some((value, index) => value !== asked[index])) [asked, answer] = [args, function_(...args)];
    return answer;
  };
}

// Counts of a negative binomial law added up, to a count or a share: the count, all so far, and the
// logarithm of the last.
function summed(mean, spread, last, wanted) {
  let logged = spread > 0 ? -log1p(spread * mean) / spread : -mean;
  let [count, total] = [0, exp(logged)];
  if (!(total < wanted && last > 0 && mean > 0)) return [count, total, logged];
  const step = log(mean / (1 + spread * mean));
  do {
    logged += step + log((1 + spread * count) / (count + 1));
    total = L(total + exp(logged), 1);
    count += 1;
  } while (!(total >= wanted || count >= last || (exp(logged) <= 0 && count > mean)));
  return [count, total, logged];
}

const isFar = (mean, spread) => mean + 40 * (1 + spread * mean) > 4e5;

// Nodes and weights of Gauss and Legendre, 24 of them.
function legendre() {
  return [...Array(24).keys()].map((n) => {
    let [x, slope] = [Math.cos(Math.PI * (n + 0.75) / 24.5), 0];
    for (let turn = 0; turn < 8; turn += 1) {
      let [before, now] = [1, x];
      for (let k = 2; k <= 24; k += 1) [before, now] = [now, ((2 * k - 1) * x * now - (k - 1) * before) / k];
      slope = (24 * (x * now - before)) / (x * x - 1);
      x -= now / slope;
    }
    return [x, 2 / ((1 - x * x) * slope * slope)];
  });
}
let NODES = null;

// Of counts too many to be added up, the share above one, as parts of a beta function.
function farTail(count, mean, spread) {
  NODES = NODES || legendre();
  const shape = 1 / M(spread, 1e-9 / mean);
  const other = count + 1;
  const [left, right] = [shape / (shape + other), other / (shape + other)];
  const scale = L(sqrt(1 / shape + 1 / other), 1);
  const split = log(other / mean);
  const steps = [0, ...[...Array(18).keys()].map((n) => 2 ** n)];
  const edges = [...steps.slice(1).reverse().map((edge) => -edge), ...steps].map((edge) => scale * edge);
  const integral = (low, high) => {
    const half = (high - low) / 2;
    return NODES.reduce((sum, [node, weight]) => {
      const at = low + half * (1 + node);
      const density = exp(-(shape * log1p(right * expm1(-at)) + other * log1p(left * expm1(at))));
      return sum + (density < Infinity ? half * weight * density : 0);
    }, 0);
  };
  let [below, above] = [0, 0];
  for (let n = 1; n < edges.length; n += 1) {
    below += integral(L(edges[n - 1], split), L(edges[n], split));
    above += integral(M(edges[n - 1], split), M(edges[n], split));
  }
  return above / (below + above);
}

// From the mean on more than a count, by a continued fraction: 1 less the rest would lose its digits.
function beyond(count, mean, spread, last) {
  const [first, rest] = [count + 1, mean / (1 + spread * mean)];
  const share = spread * rest;
  const following = exp(last + log(rest * ((1 + spread * count) / first)));
  let [upper, lower, all] = [1, 0, 1];
  for (let order = 0; order < 1e4; order += 1) {
    const [half, at] = [F(order / 2), first + order];
    const term =
      (order % 2
        ? (half + 1) * (rest - (half + 1) * share)
        : -(first + half) * (rest + (first + half) * share)) /
      (at * (at + 1));
    [upper, lower] = [1 + term / upper, 1 / (1 + term * lower)];
    all *= upper * lower;
    if (!(Math.abs(upper * lower - 1) > 2 ** -50)) break;
  }
  return following / all;
}

const negative_binomial_tail = remembered((count, mean, spread) => {
  if (isFar(mean, spread)) return farTail(count, mean, spread);
  const [, below, last] = summed(mean, spread, count, Infinity);
  return count + 1 < mean ? 1 - below : beyond(count, mean, spread, last);
});

const negative_binomial_quantile = remembered((share, mean, spread) => {
  if (!isFar(mean, spread)) return summed(mean, spread, Infinity, share)[0];
  let [least, most] = [-1, 1];
  while (farTail(most, mean, spread) > 1 - share) most *= 2;
  while (most - least > M(1, 1e-15 * most)) {
    const middle = M(F((least + most) / 2), 0);
    if (farTail(middle, mean, spread) <= 1 - share) most = middle;
    else least = middle;
  }
  return most;
});
