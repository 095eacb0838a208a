"""Statements as MathML, for pages: read from their LaTeX."""

from __future__ import annotations

import re
from html import escape, unescape

from overhead.quantity import Quantity
from sweeps import latex

_TOKENS = re.compile(r"\\[A-Za-z]+|\\.|\d[\d.]*(?:e[+-]?\d+)?|.")
_ENDS = ("}", r"\right")
# What LaTeX calls a function, and signs that HTML calls otherwise.
_FUNCTIONS = (r"\min", r"\max", r"\log", r"\gcd")
_SIGNS = {
    r"\,": "\N{INVISIBLE TIMES}",
    r"\neq": "≠",
    "-": "\N{MINUS SIGN}",
}
_IF, _ELSE = "<mtext>if\N{NO-BREAK SPACE}</mtext>", "<mtext>else\N{NO-BREAK SPACE}</mtext>"


def equation(returns: str, expression: str) -> str:
    """Return an equation as MathML."""
    return math(symbol(latex.equation(returns, expression)))


def of(quantity: Quantity) -> str:
    """Return a quantity's symbol as MathML."""
    return math(symbol(quantity.symbol))


def math(inner: str) -> str:
    """Return MathML as an element of a page."""
    space = "http://www.w3.org/1998/Math/MathML"
    return f'<math xmlns="{space}" displaystyle="true">{inner}</math>'


def symbol(text: str) -> str:
    """Return LaTeX as MathML: a symbol of the vocabulary, or a statement."""
    parts = _TOKENS.findall(text)
    made = _row(_items(parts))
    if parts:
        message = f"the symbol '{text}' closes a group that it doesn't open"
        raise ValueError(message)
    return made


def _row(items: list[str]) -> str:
    return f"<mrow>{''.join(items)}</mrow>"


def _items(parts: list[str]) -> list[str]:
    """Take atoms with their indices up to a group's end."""
    done = []
    while parts and parts[0] not in _ENDS:
        if parts[0] == " ":
            parts.pop(0)
            continue
        base = _atom(parts)
        marks = {"_": "", "^": ""}
        while parts and parts[0] in ("_", "^", "'"):
            mark = parts.pop(0)
            script = "^" if mark == "'" else mark
            marks[script] += "<mo>\N{PRIME}</mo>" if mark == "'" else _atom(parts)
        low, high = (f"<mrow>{mark}</mrow>" for mark in marks.values())
        both = {
            (True, True): ("msubsup", low + high),
            (True, False): ("msub", low),
            (False, True): ("msup", high),
        }
        tag, more = both.get((bool(marks["_"]), bool(marks["^"])), ("mrow", ""))
        done.append(f"<{tag}>{base}{more}</{tag}>" if more else base)
    return done


def _atom(parts: list[str]) -> str:
    """Take one number, letter, sign, function or group."""
    part = parts.pop(0)
    match part:
        case "{":
            inner = _row(_items(parts))
            parts.pop(0)
            return inner
        case r"\mathrm" | r"\text":
            end = parts.index("}")
            words = escape("".join(parts[1:end]).replace("\\", ""))
            del parts[: end + 1]
            if part == r"\text":
                return f"<mtext>{words.strip()}\N{NO-BREAK SPACE}</mtext>"
            return f'<mi mathvariant="normal">{words}</mi>'
        case r"\bar" | r"\hat":
            over = "\N{MACRON}" if part == r"\bar" else "^"
            return f"<mover>{_atom(parts)}<mo>{over}</mo></mover>"
        case r"\frac":
            return f"<mfrac>{_atom(parts)}{_atom(parts)}</mfrac>"
        case r"\binom":
            both = f"{_atom(parts)}{_atom(parts)}"
            return _fenced([f'<mfrac linethickness="0">{both}</mfrac>'], "(", ")")
        case r"\sqrt":
            return f"<msqrt>{_atom(parts)}</msqrt>"
        case r"\left":
            left = _sign(parts.pop(0))
            inside = _items(parts)
            right = _sign(parts.pop(1))
            parts.pop(0)
            return _cases(inside) if _IF in inside else _fenced(inside, left, right)
    if part in _FUNCTIONS:
        return f'<mi mathvariant="normal">{part[1:]}</mi>'
    text = _sign(part)
    tag = "mn" if text[:1].isdigit() else "mi" if text.isalpha() else "mo"
    return f"<{tag}>{escape(text)}</{tag}>"


def _sign(part: str) -> str:
    """Return what LaTeX's name of a sign or letter shows."""
    if part in _SIGNS:
        return _SIGNS[part]
    named = part.startswith("\\") and part[1:].isalpha()
    return unescape(f"&{part[1:]};") if named else part.removeprefix("\\")


def _fenced(inside: list[str], left: str, right: str) -> str:
    return _row([f"<mo>{escape(left)}</mo>", *inside, f"<mo>{escape(right)}</mo>"])


def _cases(inside: list[str]) -> str:
    """Return a value with its condition above another, in place of a line."""
    at, other = inside.index(_IF), inside.index(_ELSE)
    value, condition, rest = inside[:at], inside[at + 1 : other - 1], inside[other + 1 :]
    rows = (
        f"<mtd>{_row(value)}</mtd><mtd>{_IF}{_row(condition)}</mtd>",
        f"<mtd>{_row(rest)}</mtd><mtd>{_ELSE}</mtd>",
    )
    cells = "".join(f"<mtr>{row}</mtr>" for row in rows)
    return f"<mrow><mo>{{</mo><mtable>{cells}</mtable></mrow>"
