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

function gcd(one, other) {
  let a = abs(Math.trunc(one));
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

function power_sum(one, other, exponent) {
  const [first, second] = exponent < 0 === one < other ? [one, other] : [other, one];
  if (!(first > 0 && first < Infinity)) return first;
  return first * (1 + (second / first) ** exponent) ** (1 / exponent);
}

function never_drawn(total, marked, draws) {
  let share = 1;
  for (let drawn = 0; drawn < L(draws, total, 4096); drawn += 1)
    share *= M(total - marked - drawn, 0) / M(total - drawn, 1);
  return share;
}
