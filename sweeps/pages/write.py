"""One HTML file that needs no other: the template with a page's data, values and script in it.

A kind of page is a name in `KINDS` with its files of `files/`: after those that all kinds share,
one that declares ``function start(data, bytes)``.  It is called with the page's `data` (as JSON
holds them) and its `values` unpacked (an `ArrayBuffer`, or null).  The regions that it fills are
those of `files/page.html`, and an empty region isn't seen.  What all kinds share:

``state.js``
    `makeState`: what the page shows, kept in the address's fragment; `boot` and `download`.
``axis.js``
    Numbers with units as the figures write them (`Scale` of `sweeps.plots.style`, from
    `common`), `readNumber`, and axes with their ticks: `axisOf`, `bandAxis`.
``draw.js``
    `makeFrame` (axes and a canvas in a region), `drawLines`, `drawPoints`, `drawMap`,
    `drawBars`, `legend`, `interact` (pointer and keys).
``controls.js``
    `make` (an element with its text; never HTML), `region` and `fill` (the regions), `said`,
    `note`, `details`, `buttons`, `slider`, `choice`, `field`.

Nothing in a page is executed but its own script: the page's policy names it by its hash, data
are JSON in which no tag can end, and scripts set text, never markup.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sweeps.errors import refuse
from sweeps.plots import style
from sweeps.spec.units import without_infinities
from sweeps.store.publish import check_output, system_calls, write_whole

FILES = Path(__file__).parent / "files"
SHARED = ("state.js", "axis.js", "draw.js", "controls.js")
KINDS: Mapping[str, tuple[str, ...]] = {
    "stored": ("sweep.js", "views.js", "stored.js"),
    "live": ("plan.js", "live.js", "live.css"),
}
MOST_BYTES = 20_000_000

_SPACED = re.compile(r" (=>|===|!==|&&|\|\|) ")
_SHADES = 9  # colours of the scale for numbers; those between are mixed
_AREAS = 16
_LIGHTER = 0.3  # how much white lines get on a dark page
_UNITS = (
    "byte",
    "bit",
    "s",
    "byte s-1",
    "bit s-1",
    "s byte-1",
    "J",
    "J bit-1",
    "J byte-1",
    "W",
    "s-1",
    "USD",
    style.IN_BITS,
    style.IN_GB,
    style.TOKENS,
)


@dataclass(frozen=True, slots=True)
class Page:
    """What a page holds."""

    kind: str  # One of `KINDS`
    title: str  # The question that its first view answers
    fixed: str  # What is the same in all of it, in one line
    summary: str  # What is read where no script runs
    data: Mapping[str, object]  # What its script is called with
    values: bytes = b""  # Numbers that its script unpacks
    code: str = field(default="")  # Functions of this page alone, which its script calls


def common() -> dict[str, object]:
    """Return what every page's data have: units' scales and colours, as the figures have them."""
    scales = {}
    for units in _UNITS:
        scale = style.scale_of(units)
        scales[units] = {"multiples": scale.multiples, "binary": scale.binary}
    lines = style.COLOURS[:6]
    return {
        "scales": scales,
        "colours": {
            "light": list(lines),
            "dark": [_lighter(colour) for colour in lines],
            "areas": [style.region_colour(index) for index in range(_AREAS)],
            "shades": [style.scale_colour(index / (_SHADES - 1)) for index in range(_SHADES)],
        },
    }


def _lighter(colour: str) -> str:
    parts = [int(colour[start : start + 2], 16) for start in (1, 3, 5)]
    return "#" + "".join(f"{round(part + _LIGHTER * (255 - part)):02x}" for part in parts)


def script(kind: str, code: str = "") -> str:
    """Return the script of a kind of page, with functions of one page alone."""
    names = (name for name in (*SHARED, *KINDS[kind]) if name.endswith(".js"))
    parts = [(FILES / name).read_text(encoding="utf-8") for name in names]
    # Indentation and comments are a sixth of it; no text spans lines.
    lines = [line.lstrip() for line in "\n".join(parts).splitlines()]
    # So are spaces around operators that no text has.
    compact = [_SPACED.sub(r"\1", line) for line in lines if line and not line.startswith("//")]
    return "\n".join(["(() => {", '"use strict";', *compact, code, "boot();", "})();", ""])


def look_of(kind: str) -> str:
    """Return the style of a kind of page, without spaces that mean nothing."""
    names = ("page.css", *(name for name in KINDS[kind] if name.endswith(".css")))
    text = "".join((FILES / name).read_text(encoding="utf-8") for name in names)
    return re.sub(r"\s*([{};,])\s*|(?<=:)\s+", r"\1", text)


def compose(page: Page, name: str) -> bytes:
    """Return a page as the text of its file; `name` is what faults call it.

    Raises
    ------
    InputError
        If it is larger than what opens in a browser at once.
    """
    code = script(page.kind, page.code)
    look = look_of(page.kind)
    data = data_of(page)
    packed = gzip.compress(page.values, mtime=0) if page.values else b""
    parts = {
        "policy": f"default-src 'none'; script-src '{_hash(code)}' blob:; worker-src blob:; "
        f"style-src '{_hash(look)}'; connect-src data:; img-src data: blob:",
        "title": html.escape(page.title),
        "held": html.escape(page.fixed),
        "summary": html.escape(page.summary),
        "style": look,
        # No tag can begin in data: they stay text, whatever they hold.
        "data": data.replace("<", "\\u003c"),
        "values": base64.b64encode(packed).decode("ascii"),
        "script": code,
    }
    template = (FILES / "page.html").read_text(encoding="utf-8")
    text = re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], template)
    whole = text.encode("utf-8")
    if len(whole) > MOST_BYTES:
        size = f"a page of {len(whole) / 1e6:.0f} MB"
        refuse(name, size, "is too large to open at once", SLICES)
    return whole


SLICES = "at most 20 MB: --at DIMENSION=VALUE holds one, --quantity NAME takes some, or reduce it"


def data_of(page: Page) -> str:
    """Return what a page's script is called with, as JSON."""
    whole = without_infinities({**common(), **page.data})
    return json.dumps(whole, allow_nan=False, separators=(",", ":"))


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode()


def write_page(page: Page, path: Path, *, overwrite: bool = False) -> int:
    """Write a page, whole or not at all, and return its bytes."""
    target = check_output(path, overwrite=overwrite)
    whole = compose(page, str(path))
    with system_calls(path):
        write_whole(target, whole)
    return len(whole)
