"""The stated expression of a formula: evaluated (on arrays, or with units), LaTeX, MathML."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from html import escape, unescape
from typing import Any

import numpy as np

from overhead.arrays import xp
from overhead.quantity import VOCABULARY, Array
from overhead.recording import named

# More experts a token than this no model has.
MOST_DRAWS = 4096
# Counts whose probabilities are added up at once, over all cells.
COUNTS = 65536
# Where laws have more counts than so many of some probability, they are integrated.
MOST_COUNTS = 400_000.0
# Of a continued fraction: terms at most, and the least change that is worth another one.
MOST_TERMS, LAST_DIGIT = 10_000, 2.0**-50


@named()
def popcount_sum(ranks: Array) -> Array:
    """Return the number of one bits in 0 .. ranks - 1 together (shape of `ranks`).

    Bit i is set in half of each period of 2^(i+1) numbers.
    """
    whole = np.asarray(ranks, dtype=np.float64)
    total = np.zeros_like(whole)
    for bit in range(53):
        half = 2.0**bit
        if not np.any(whole > half):
            break
        period = 2.0 * half
        total += np.floor(whole / period) * half + np.maximum(whole % period - half, 0.0)
    return total


@named("gcd")
def greatest_common_divisor(one: Array, other: Array) -> Array:
    """Return the greatest common divisor of whole numbers, of the shape to which they broadcast.

    What isn't whole is cut off.
    """
    whole = (np.asarray(number, dtype=np.float64).astype(np.int64) for number in (one, other))
    return np.asarray(np.gcd(*whole), dtype=np.float64)


@named()
def square_divisor(number: Array) -> Array:
    """Return the largest divisor of whole numbers that is no larger than their root.

    What isn't whole is cut off.
    """
    whole = np.asarray(number, dtype=np.float64).astype(np.int64)
    each, place = np.unique(whole, return_inverse=True)
    best = np.ones_like(each)
    # Divisors one by one, for all numbers at once.
    for divisor in range(2, int(np.sqrt(each[-1])) + 1 if each.size else 0):
        best = np.where((each % divisor == 0) & (divisor * divisor <= each), divisor, best)
    return np.asarray(best[place].reshape(whole.shape), dtype=np.float64)


@named()
def power_sum(one: Array, other: Array, power: Array | float) -> Array:
    """Return (one^power + other^power)^(1/power) of numbers from 0: a maximum that is smooth.

    With a power below 0 it is a smooth minimum; either way the sharper, the further from 0.
    """
    larger, smaller = np.maximum(one, other), np.minimum(one, other)
    first = np.where(np.less(power, 0.0), smaller, larger)
    second = np.where(np.less(power, 0.0), larger, smaller)
    some = (first > 0.0) & (first < np.inf)
    ratio = np.where(some, second, 1.0) / np.where(some, first, 1.0)
    return np.asarray(np.where(some, first * (1.0 + ratio**power) ** (1.0 / power), first))


@named()
def never_drawn(total: Array, marked: Array, draws: Array) -> Array:
    """Return the share of draws without replacement that meet none of the marked ones.

    Of `total` things `draws` are drawn: C(total - marked, draws)/C(total, draws).
    """
    total, marked, draws = (np.asarray(n, dtype=np.float64) for n in (total, marked, draws))
    share = np.ones(np.broadcast_shapes(total.shape, marked.shape, draws.shape))
    most = float(np.max(draws, initial=0.0))
    # Draw by draw, for all numbers at once; a draw beyond what there is changes nothing.
    for drawn in range(int(min(most, MOST_DRAWS))):
        left = np.maximum(total - drawn, 1.0)
        missed = np.maximum(total - marked - drawn, 0.0) / left
        share = share * np.where(drawn < np.minimum(draws, total), missed, 1.0)
    return share


@named()
def negative_binomial_tail(count: Array, mean: Array, dispersion: Array) -> Array:
    """Return the probability of more than a count, of the shape to which the inputs broadcast.

    The variance is mean + dispersion*mean^2; with a dispersion of 0 it is Poisson's law.
    """
    count, mean, dispersion = np.broadcast_arrays(*map(np.asarray, (count, mean, dispersion)))
    far = _far(mean, dispersion)
    near = np.where(far, 0.0, mean)
    _, below, last = _sum_up(near, dispersion, count=count)
    # Beyond the mean never as 1 less what lies below, which leaves no digits of a small one.
    above = count + 1.0 >= near
    beyond = _beyond(count, np.where(above, near, 0.0), dispersion, last)
    found = np.where(above, beyond, 1.0 - below)
    if np.any(far):
        found = np.array(found)
        found[far] = _tail(count[far], mean[far], dispersion[far])
    return found


@named()
def negative_binomial_quantile(share: Array, mean: Array, dispersion: Array) -> Array:
    """Return the least count that isn't exceeded with a probability, as `negative_binomial_tail`.

    A share must be below 1.
    """
    share, mean, dispersion = np.broadcast_arrays(*map(np.asarray, (share, mean, dispersion)))
    far = _far(mean, dispersion)
    found = _sum_up(np.where(far, 0.0, mean), dispersion, share=share)[0]
    if np.any(far):
        found = np.array(found)
        found[far] = _count(share[far], mean[far], dispersion[far])
    return found


def _far(mean: Array, dispersion: Array) -> Array:
    """Return whether counts of some probability are too many to be added up one by one."""
    return mean + 40.0 * (1.0 + dispersion * mean) > MOST_COUNTS


def _count(share: Array, mean: Array, dispersion: Array) -> Array:
    """Return the least counts of a probability, between bounds that are halved."""
    least, most = np.full(share.shape, -1.0), np.ones(share.shape)
    while np.any(short := _tail(most, mean, dispersion) > 1.0 - share):
        most = np.where(short, 2.0 * most, most)
    while np.any(most - least > np.maximum(1.0, 1e-15 * most)):
        middle = np.maximum(np.floor((least + most) / 2.0), 0.0)
        enough = _tail(middle, mean, dispersion) <= 1.0 - share
        least, most = np.where(enough, least, middle), np.where(enough, middle, most)
    return most


def _tail(count: Array, mean: Array, dispersion: Array) -> Array:
    """Return probabilities of more than counts, at one dimension, as parts of a beta function.

    Of its density's two sides, over the logit and from its peak on, neither is small beside the
    other where both count; strips grow away from the peak (NIST DLMF, 8.17.24: the law's sum).
    """
    one = 1.0 / np.maximum(dispersion, 1e-9 / mean)
    other = count + 1.0
    left, right = (one / (one + other))[:, None, None], (other / (one + other))[:, None, None]
    scale = np.minimum(np.sqrt(1.0 / one + 1.0 / other), 1.0)
    steps = np.concatenate(([0.0], 2.0 ** np.arange(18)))
    edges = scale[:, None] * np.concatenate((-steps[:0:-1], steps))
    split = np.log(other / mean)[:, None]
    nodes, weights = np.polynomial.legendre.leggauss(24)

    def integral(low: Array, high: Array) -> Array:
        half = (high - low)[..., None] / 2.0
        at = low[..., None] + half * (1.0 + nodes)
        # So far from the peak that a logarithm is infinite there is nothing.
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            logs = one[:, None, None] * np.log1p(right * np.expm1(-at))
            logs += other[:, None, None] * np.log1p(left * np.expm1(at))
            density = np.nan_to_num(np.exp(-logs), posinf=0.0)
        return np.sum(half * weights * density, axis=(1, 2))

    below = integral(np.minimum(edges[:, :-1], split), np.minimum(edges[:, 1:], split))
    above = integral(np.maximum(edges[:, :-1], split), np.maximum(edges[:, 1:], split))
    return above / (below + above)


def _beyond(count: Array, mean: Array, dispersion: Array, last: Array) -> Array:
    """Return probabilities of more than counts from the mean on, by the logarithm of the count's.

    The next count's probability by the continued fraction of an incomplete beta function, of
    which the tail is one (NIST DLMF, 8.17.22, by Lentz's way); with a dispersion of 0 of a gamma.
    """
    first, rest = count + 1.0, mean / (1.0 + dispersion * mean)
    share = dispersion * rest  # the function's x, and `rest` is x times its b
    with np.errstate(divide="ignore"):
        following = np.exp(last + np.log(rest * ((1.0 + dispersion * count) / first)))
    upper, lower, found = np.ones(mean.shape), np.zeros(mean.shape), np.ones(mean.shape)
    for order in range(MOST_TERMS):
        half, at = order // 2, first + order
        if order % 2:
            term = (half + 1.0) * (rest - (half + 1.0) * share) / (at * (at + 1.0))
        else:
            term = -(first + half) * (rest + (first + half) * share) / (at * (at + 1.0))
        upper, lower = 1.0 + term / upper, 1.0 / (1.0 + term * lower)
        change = upper * lower
        found = found * change
        if not np.any(np.abs(change - 1.0) > LAST_DIGIT):
            break
    return following / found


def _sum_up(
    mean: Array, dispersion: Array, *, count: Array | float = np.inf, share: Array | float = np.inf
) -> tuple[Array, Array, Array]:
    """Return the first counts of a share, up to a count; what cumulates; the last one's logarithm.

    Probabilities follow one from another, as logarithms, for the first ones may be very small;
    they are added up block by block.
    """
    mean, dispersion, last, wanted = np.broadcast_arrays(
        *(np.asarray(one, dtype=np.float64)[..., None] for one in (mean, dispersion, count, share))
    )
    spread = np.where(dispersion > 0.0, dispersion, 1.0)
    own = np.where(dispersion > 0.0, -np.log1p(spread * mean) / spread, -mean)
    with np.errstate(divide="ignore"):
        step = np.log(mean / (1.0 + dispersion * mean))
    found, total = np.zeros(mean.shape), np.exp(own)
    done, latest = (total >= wanted) | (last <= 0.0) | (mean <= 0.0), own
    block = np.arange(max(COUNTS // max(mean.size, 1), 1), dtype=np.float64)
    while not np.all(done):
        steps = step + np.log((1.0 + dispersion * block) / (block + 1.0))
        logs = own + np.cumsum(steps, axis=-1)
        sums = np.minimum(total + np.cumsum(np.exp(logs), axis=-1), 1.0)
        counts = np.broadcast_to(block + 1.0, sums.shape)
        # Far out nothing is added any more: all there is has been added up.
        enough = (sums >= wanted) | (counts >= last) | (np.exp(logs) <= 0.0) & (counts > mean)
        place = np.where(enough.any(axis=-1), enough.argmax(axis=-1), block.size - 1)[..., None]
        found = np.where(done, found, np.take_along_axis(counts, place, -1))
        total = np.where(done, total, np.take_along_axis(sums, place, -1))
        latest = np.where(done, latest, np.take_along_axis(logs, place, -1))
        own, done, block = logs[..., -1:], done | enough.any(axis=-1)[..., None], block + block.size
    return found[..., 0], total[..., 0], latest[..., 0]


def _of_arrays(name: str) -> Callable[..., Any]:
    """Return a function of whatever arrays are computed with."""

    def function(*values: Any) -> Any:
        return getattr(xp, name)(*values)

    return function


STANDARD = ("ceil", "exp", "expm1", "floor", "log2", "sqrt", "minimum", "maximum", "where")
FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: _of_arrays(name) for name in STANDARD},
    "gcd": greatest_common_divisor,
    "popcount_sum": popcount_sum,
    "square_divisor": square_divisor,
    "never_drawn": never_drawn,
    "power_sum": power_sum,
    "negative_binomial_tail": negative_binomial_tail,
    "negative_binomial_quantile": negative_binomial_quantile,
}

_BINARY: dict[type[ast.AST], tuple[Callable[[Any, Any], Any], int]] = {
    ast.Add: (operator.add, 1),
    ast.Sub: (operator.sub, 1),
    ast.Mult: (operator.mul, 2),
    ast.Div: (operator.truediv, 2),
    ast.Mod: (operator.mod, 2),
    ast.Pow: (operator.pow, 4),
    ast.BitAnd: (operator.and_, 0),
    ast.BitOr: (operator.or_, 0),
}
_COMPARE: dict[type[ast.AST], tuple[Callable[[Any, Any], Any], str]] = {
    ast.Lt: (operator.lt, "<"),
    ast.LtE: (operator.le, r"\leq"),
    ast.Gt: (operator.gt, ">"),
    ast.GtE: (operator.ge, r"\geq"),
    ast.Eq: (operator.eq, "="),
    ast.NotEq: (operator.ne, r"\neq"),
}


# A name, and nothing of a number such as 1e9.
_WORD = re.compile(r"(?<![\w.])[A-Za-z_]\w*")


@lru_cache(maxsize=4096)
def parse(expression: str) -> ast.expr:
    """Return an expression's syntax tree."""
    tree = ast.parse(expression, mode="eval").body
    for node in ast.walk(tree):
        _check(node, expression)
    return tree


def _check(node: ast.AST, expression: str) -> None:
    if isinstance(node, ast.Call):
        called = node.func.id if isinstance(node.func, ast.Name) else "?"
        if called not in FUNCTIONS:
            message = f"'{expression}' calls '{called}'; known: {', '.join(FUNCTIONS)}"
            raise ValueError(message)
    allowed = (ast.BinOp, ast.UnaryOp, ast.Compare, ast.Call, ast.Name, ast.Constant)
    plain = (ast.operator, ast.unaryop, ast.cmpop, ast.expr_context)
    if not isinstance(node, allowed + plain):
        message = f"'{expression}' holds a {type(node).__name__}, which no expression may"
        raise ValueError(message)


def names(expression: str) -> tuple[str, ...]:
    """Return the names of the quantities in an expression, in order of appearance."""
    found = [node.id for node in ast.walk(parse(expression)) if isinstance(node, ast.Name)]
    return tuple(dict.fromkeys(name for name in found if name not in FUNCTIONS))


def words(expression: str) -> set[str]:
    """Return the same names as `names`, by their spelling alone: nothing else is checked."""
    return set(_WORD.findall(expression)) - set(FUNCTIONS)


def evaluate(
    expression: str,
    values: Mapping[str, Any],
    functions: Mapping[str, Callable[..., Any]] | None = None,
) -> Any:
    """Evaluate an expression."""
    return _value(parse(expression), values, functions or FUNCTIONS)


def _value(node: ast.expr, values: Mapping[str, Any], functions: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant(value=value):
            return float(value)  # type: ignore[arg-type]
        case ast.Name(id=name):
            return values[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, values, functions)
        case ast.BinOp(left=left, op=op, right=right):
            apply = _BINARY[type(op)][0]
            return apply(_value(left, values, functions), _value(right, values, functions))
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            compare = _COMPARE[type(op)][0]
            return compare(_value(left, values, functions), _value(right, values, functions))
        case ast.Call(func=ast.Name(id=name), args=args):
            return functions[name](*(_value(arg, values, functions) for arg in args))
    message = f"cannot evaluate {ast.unparse(node)}"
    raise ValueError(message)


def latex(expression: str) -> str:
    """Return an expression as LaTeX, with the vocabulary's symbols."""
    return _latex(parse(expression), 0)


def _latex(node: ast.expr, outer: int) -> str:
    match node:
        case ast.Constant(value=value):
            return f"{value:g}" if isinstance(value, float) else str(value)
        case ast.Name(id=name):
            return VOCABULARY[name].symbol if name in VOCABULARY else rf"\mathrm{{{name}}}"
        case ast.UnaryOp(operand=operand):
            return f"-{_latex(operand, 3)}"
        case ast.BinOp():
            return _latex_binary(node, outer)
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            return f"{_latex(left, 0)} {_COMPARE[type(op)][1]} {_latex(right, 0)}"
        case ast.Call(func=ast.Name(id=name), args=args):
            return _latex_call(name, [_latex(arg, 0) for arg in args])
    return ast.unparse(node)


def _latex_binary(node: ast.BinOp, outer: int) -> str:
    precedence = _BINARY[type(node.op)][1]
    match node.op:
        case ast.Div():
            text = rf"\frac{{{_latex(node.left, 0)}}}{{{_latex(node.right, 0)}}}"
            return rf"\left({text}\right)" if precedence < outer - 1 else text
        case ast.Pow():
            return f"{{{_latex(node.left, 4)}}}^{{{_latex(node.right, 0)}}}"
        case ast.Mult():
            sign = r" \, "
        case ast.Mod():
            sign = r" \, \mathrm{mod} \, "
        case ast.Add():
            sign = " + "
        case ast.Sub():
            sign = " - "
        case _:
            sign = r" \wedge " if isinstance(node.op, ast.BitAnd) else r" \vee "
    right = precedence + 1 if isinstance(node.op, ast.Sub | ast.Mod) else precedence
    text = f"{_latex(node.left, precedence)}{sign}{_latex(node.right, right)}"
    return rf"\left({text}\right)" if precedence < outer else text


def _latex_call(name: str, args: list[str]) -> str:
    fenced = {
        "ceil": (r"\left\lceil ", r" \right\rceil"),
        "floor": (r"\left\lfloor ", r" \right\rfloor"),
        "sqrt": (r"\sqrt{", "}"),
    }
    if name in fenced:
        left, right = fenced[name]
        return f"{left}{args[0]}{right}"
    if name == "where":
        return rf"\left({args[1]} \text{{ if }} {args[0]}, \text{{ else }} {args[2]}\right)"
    if name == "popcount_sum":
        return rf"\sum_{{d<{args[0]}}} \mathrm{{popcount}}(d)"
    if name == "never_drawn":
        total, marked, draws = args
        return rf"\binom{{{total} - {marked}}}{{{draws}}} / \binom{{{total}}}{{{draws}}}"
    if name == "power_sum":
        one, other, power = args
        return rf"\left({{{one}}}^{{{power}}} + {{{other}}}^{{{power}}}\right)^{{1/{power}}}"
    if name == "square_divisor":
        return rf"\max\left\{{k \mid {args[0]}, k \leq \sqrt{{{args[0]}}}\right\}}"
    if name == "expm1":
        return rf"\left({{e}}^{{{args[0]}}} - 1\right)"
    if name.startswith("negative_binomial"):
        shown = "P" if name.endswith("tail") else "Q"
        return rf"{shown}_\mathrm{{NB}}\left({', '.join(args)}\right)"
    shown = {
        "minimum": r"\min", "maximum": r"\max", "log2": r"\log_2", "gcd": r"\gcd", "exp": r"\exp",
    }[name]  # fmt: skip
    return rf"{shown}\left({', '.join(args)}\right)"


# Statements as MathML, for pages.

_SIGNS: dict[type[ast.AST], str] = {
    ast.Add: "+", ast.Sub: "\N{MINUS SIGN}", ast.Mult: "\N{INVISIBLE TIMES}", ast.Mod: "mod",
    ast.BitAnd: "\N{LOGICAL AND}", ast.BitOr: "\N{LOGICAL OR}", ast.Lt: "<", ast.LtE: "≤",
    ast.Gt: ">", ast.GtE: "≥", ast.Eq: "=", ast.NotEq: "≠",
}  # fmt: skip
_NAMES = {"minimum": "min", "maximum": "max"}


def mathml(returns: str, expression: str) -> str:
    """Return an equation as MathML."""
    return math(f"{symbol(VOCABULARY[returns].symbol)}{_sign('=')}{_mathml(parse(expression))}")


def math(inner: str) -> str:
    """Return MathML as an element of a page."""
    space = "http://www.w3.org/1998/Math/MathML"
    return f'<math xmlns="{space}" displaystyle="true">{inner}</math>'


def symbol(latex: str) -> str:
    """Return a symbol of the vocabulary, which is LaTeX of letters and indices, as MathML."""
    parts = re.findall(r"\\[A-Za-z]+|\\.|.", latex)
    made = _group(parts)
    if parts:
        message = f"the symbol '{latex}' closes a group that it doesn't open"
        raise ValueError(message)
    return made


def _group(parts: list[str]) -> str:
    """Take atoms with their indices up to a group's end."""
    done = []
    while parts and parts[0] != "}":
        if parts[0] == " ":
            parts.pop(0)
            continue
        base = _atom(parts)
        marks = {"_": "", "^": ""}
        while parts and parts[0] in ("_", "^", "'"):
            mark = parts.pop(0)
            place = "^" if mark == "'" else mark
            marks[place] += "<mo>\N{PRIME}</mo>" if mark == "'" else _atom(parts)
        low, high = (f"<mrow>{mark}</mrow>" for mark in marks.values())
        both = {(True, True): ("msubsup", low + high), (True, False): ("msub", low),
                (False, True): ("msup", high)}  # fmt: skip
        tag, more = both.get((bool(marks["_"]), bool(marks["^"])), ("mrow", ""))
        done.append(f"<{tag}>{base}{more}</{tag}>" if more else base)
    return f"<mrow>{''.join(done)}</mrow>"


def _atom(parts: list[str]) -> str:
    """Take one letter, sign or group."""
    part = parts.pop(0)
    if part == "{":
        inner = _group(parts)
        parts.pop(0)
        return inner
    if part == r"\mathrm":
        end = parts.index("}")
        text = "".join(parts[1:end]).replace("\\", "")
        del parts[: end + 1]
        return f'<mi mathvariant="normal">{escape(text)}</mi>'
    if part in (r"\bar", r"\hat"):
        over = "\N{MACRON}" if part == r"\bar" else "^"
        return f"<mover>{_atom(parts)}<mo>{over}</mo></mover>"
    text = unescape(f"&{part[1:]};") if part.startswith("\\") and part[1:].isalpha() else part
    tag = "mn" if text.isdigit() else "mi" if text.isalpha() else "mo"
    return f"<{tag}>{escape(text.removeprefix(chr(92)))}</{tag}>"


def _sign(text: str) -> str:
    return f"<mo>{escape(text)}</mo>"


def _fenced(inner: str, left: str = "(", right: str = ")") -> str:
    return f"<mrow>{_sign(left)}{inner}{_sign(right)}</mrow>"


def _mathml(node: ast.expr, outer: int = 0) -> str:
    match node:
        case ast.Constant(value=int(value) | float(value)):
            return f"<mn>{value:.12g}</mn>"
        case ast.Name(id=name):
            return symbol(VOCABULARY[name].symbol)
        case ast.UnaryOp(operand=operand):
            return f"<mrow>{_sign(_SIGNS[ast.Sub])}{_mathml(operand, 3)}</mrow>"
        case ast.BinOp(left=left, op=ast.Div(), right=right):
            made = f"<mfrac>{_mathml(left)}{_mathml(right)}</mfrac>"
            return _fenced(made) if outer > _BINARY[ast.Div][1] + 1 else made
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return f"<msup>{_mathml(left, 4)}{_mathml(right)}</msup>"
        case ast.BinOp(left=left, op=ast.Mult(), right=right) if _is(left, right):
            return f"<msup>{_mathml(left, 4)}<mn>2</mn></msup>"
        case ast.BinOp(
            left=ast.BinOp(left=first, op=ast.Mult() as op, right=left), op=ast.Mult(), right=right
        ) if _is(left, right):
            square = ast.BinOp(left, ast.Mult(), right)
            return _mathml(ast.BinOp(first, op, square), outer)
        case ast.BinOp(left=left, op=op, right=right):
            own = _BINARY[type(op)][1]
            second = own + 1 if isinstance(op, ast.Sub | ast.Mod) else own
            sign = _sign(_SIGNS[type(op)])
            made = f"<mrow>{_mathml(left, own)}{sign}{_mathml(right, second)}</mrow>"
            return _fenced(made) if own < outer else made
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            made = f"<mrow>{_mathml(left)}{_sign(_SIGNS[type(op)])}{_mathml(right)}</mrow>"
            return _fenced(made) if outer else made
        case ast.Call(func=ast.Name(id=name), args=args):
            return _mathml_call(name, [_mathml(arg) for arg in args])
    message = f"no MathML for {ast.unparse(node)}"
    raise ValueError(message)


def _is(one: ast.expr, other: ast.expr) -> bool:
    """Return whether two factors are one quantity, whose product is its square."""
    return isinstance(one, ast.Name) and isinstance(other, ast.Name) and one.id == other.id


def _mathml_call(name: str, args: list[str]) -> str:
    match name:
        case "expm1":
            less = f"{_sign(_SIGNS[ast.Sub])}<mn>1</mn>"
            return _fenced(f"<msup><mi>e</mi>{args[0]}</msup>{less}")
        case "power_sum":
            *both, power = args
            powers = _sign("+").join(f"<msup>{_fenced(one)}{power}</msup>" for one in both)
            root = f"<mfrac><mn>1</mn>{power}</mfrac>"
            return f"<msup>{_fenced(powers)}{root}</msup>"
        case "never_drawn":
            total, marked, draws = args
            left = f"<mrow>{total}{_sign(_SIGNS[ast.Sub])}{marked}</mrow>"
            drawn = [
                _fenced(f'<mfrac linethickness="0">{one}{draws}</mfrac>') for one in (left, total)
            ]
            return f"<mfrac>{''.join(drawn)}</mfrac>"
        case "square_divisor":
            least = f"{_sign('|')}{args[0]},<mi>k</mi>{_sign('≤')}<msqrt>{args[0]}</msqrt>"
            shown = f'<mi mathvariant="normal">max</mi>{_fenced(f"<mi>k</mi>{least}", "{", "}")}'
            return f"<mrow>{shown}</mrow>"
        case "sqrt":
            return f"<msqrt>{args[0]}</msqrt>"
        case "ceil":
            return _fenced(args[0], "⌈", "⌉")
        case "floor":
            return _fenced(args[0], "⌊", "⌋")
        case "exp":
            return f"<msup><mi>e</mi>{args[0]}</msup>"
        case "where":
            rows = ((args[1], "if", args[0]), (args[2], "else", ""))
            cells = "".join(
                f"<mtr><mtd>{value}</mtd><mtd><mtext>{word}\N{NO-BREAK SPACE}</mtext>{condition}"
                "</mtd></mtr>"
                for value, word, condition in rows
            )
            return f"<mrow><mo>{{</mo><mtable>{cells}</mtable></mrow>"
    comma = _sign(",")
    if name.startswith("negative_binomial"):
        mark = "P" if name.endswith("tail") else "Q"
        below = '<mi mathvariant="normal">NB</mi>'
        return f"<mrow><msub><mi>{mark}</mi>{below}</msub>{_fenced(comma.join(args))}</mrow>"
    shown = f'<mi mathvariant="normal">{escape(_NAMES.get(name, name))}</mi>'
    if name == "log2":
        shown = '<msub><mi mathvariant="normal">log</mi><mn>2</mn></msub>'
    return f"<mrow>{shown}{_fenced(comma.join(args))}</mrow>"
