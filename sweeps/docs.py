"""A site to read offline: plain HTML of what the declarations say, and the guide by jobs.

Every page follows from declarations: the commands' own help, the keys of specs, the vocabulary,
the registry of formulas and algorithms, and the catalogue's files.  Statements are set in MathML
from their syntax trees, with the vocabulary's symbols.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field, replace
from html import escape
from io import BytesIO, StringIO
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

import overhead
from overhead.collectives.algorithm import ALGORITHMS, NETWORKS, Algorithm
from overhead.everything import load
from overhead.expression import names
from overhead.formula import REGISTRY, Call, Formula
from overhead.labels import LABELS
from overhead.quantity import VOCABULARY
from overhead.source import SOURCES
from overhead.statements import statements
from sweeps import mathml
from sweeps.errors import RunError, refuse
from sweeps.result import LINE
from sweeps.spec.catalog import (
    load_framework,
    load_hardware,
    load_model,
    read_toml,
    shipped,
    spec_names,
)
from sweeps.spec.machine import Figure
from sweeps.spec.reduction import KEYS, REDUCTIONS
from sweeps.spec.sweep import SETTINGS_KEYS
from sweeps.spec.units import format_quantity
from sweeps.store.publish import check_output, publish_folder, system_calls, temporary

STYLE = Path(__file__).parent / "page" / "files" / "site.css"
MENU = {
    "index": "Guide", "commands": "Commands", "specs": "Specs",
    "quantities": "Quantities and formulas", "algorithms": "Algorithms", "machines": "Machines",
    "models": "Models", "software": "Software", "sources": "Sources",
}  # fmt: skip
# What nothing computes stands on a page of its own.
GIVEN = "quantities-given"
OWN = "own"  # What a user's own formulas give, likewise
SCREEN = 18  # lines

# Pieces of pages.


def _link(file: str, text: str, place: str = "", title: str = "") -> str:
    about = f' title="{escape(title)}"' if title else ""
    return f'<a href="{file}.html{f"#{place}" if place else ""}"{about}>{escape(text)}</a>'


def _code(text: str) -> str:
    return f"<code>{escape(text)}</code>"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; its cells are HTML already."""
    first = "".join(f"<th>{escape(one)}</th>" for one in head)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>\n" for row in rows)
    return f'<div class="wide"><table><tr>{first}</tr>\n{body}</table></div>\n'


def _facts(facts: Mapping[str, str]) -> str:
    """Return a list of facts that aren't empty; they are HTML already."""
    each = "".join(
        f"<dt>{escape(name)}</dt><dd>{text}</dd>\n" for name, text in facts.items() if text
    )
    return f"<dl>{each}</dl>\n" if each else ""


def _where(when: Mapping[str, str]) -> str:
    """Return labels with their values; those that follow from others have no place of their own."""
    shown = (
        f"{_link('specs', label, f'label-{label}') if label in LABELS else escape(label)} = "
        f"{escape(values.replace('|', ' or '))}"
        for label, values in when.items()
    )
    return ", ".join(shown)


class _Help(click.HelpFormatter):
    """What a command's help says, as HTML."""

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        self.write(f"<pre>{escape(f'{prog} {args}')}</pre>\n")

    def write_heading(self, heading: str) -> None:
        self.write(f"<h2>{escape(heading)}</h2>\n")

    def write_paragraph(self) -> None:
        pass

    def write_text(self, text: str) -> None:
        for part in text.split("\n\n"):
            kept = part.startswith("\b\n")
            tag, words = ("pre", part[2:]) if kept else ("p", " ".join(part.split()))
            self.write(f"<{tag}>{escape(words)}</{tag}>\n")

    def write_dl(self, rows: Iterable[tuple[str, str]], *_: Any, **__: Any) -> None:
        self.write(_table(("option", "meaning"), ((_code(a), escape(b)) for a, b in rows)))


# The guide: what people ask, with the commands that answer it.


@dataclass(frozen=True, slots=True)
class Job:
    """What somebody wants to know, and the command that answers it."""

    name: str
    title: str
    question: str
    look: str  # What to look at
    command: str = ""  # The command line, or several
    python: str = ""  # Or the code
    files: Mapping[str, str] = field(default_factory=dict)  # Files of one's own that it reads
    figure: str = ""  # The file of the figure to look at, where there is one
    lines: int = SCREEN  # How much of what it prints is shown
    screen: str = ""  # The first lines of what it prints; empty: it wasn't run
    picture: bytes = b""  # The figure, small; empty: it wasn't drawn


def read_jobs() -> tuple[Job, ...]:
    """Read the jobs that are shipped."""
    return tuple(Job(**one) for one in read_toml(shipped("jobs") / "jobs.toml")["jobs"])


def run_job(job: Job, run: Callable[[Sequence[str]], int], *, draw: bool = False) -> Job:
    """Return a job with the first screen of what it prints; `run` runs a command's words.

    With `draw` the figure to look at is drawn, too.

    Raises
    ------
    RunError
        If the command fails.
    """
    shown, picture, draw = [], b"", draw and bool(job.figure)
    with TemporaryDirectory() as folder, contextlib.chdir(folder), _terminal():
        for name, text in job.files.items():
            Path(name).write_text(text, encoding="utf-8")
        for line in _lines(job.command):
            last = line == _lines(job.command)[-1]
            code, printed = _printed(shlex.split(line)[1:], run, draw=draw and last)
            if code:
                message = f"{line}: ends with exit code {code}"
                raise RunError(message)
            shown += [f"$ {line}", *_first(printed, job.lines), ""]
        if job.python:
            with redirect_stdout(StringIO()) as said:
                exec(job.python, {})
            shown = _first(said.getvalue(), job.lines)
            if job.figure:
                from matplotlib import pyplot

                if draw:
                    pyplot.savefig(job.figure, dpi=150, bbox_inches="tight")
                pyplot.close("all")
        if draw:
            picture = _small(Path(job.figure))
    return replace(job, screen="\n".join(shown).rstrip(), picture=picture)


@contextlib.contextmanager
def _terminal() -> Iterator[None]:
    """Let commands write for a terminal as most have it, whatever this one is."""
    kept = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = str(LINE)
    try:
        yield
    finally:
        del os.environ["COLUMNS"]
        os.environ.update({} if kept is None else {"COLUMNS": kept})


_WIDE = 800  # dots of a notebook's picture
_TONES = 128


def _small(path: Path) -> bytes:
    """Return a picture in few dots and colours: notebooks are kept small."""
    from PIL import Image

    with Image.open(path) as whole:
        size = (_WIDE, round(whole.height * _WIDE / whole.width))
        picture = whole.convert("RGB").resize(size, Image.Resampling.LANCZOS)
        picture = picture.quantize(_TONES, Image.Quantize.FASTOCTREE)
    data = BytesIO()
    picture.save(data, format="PNG", optimize=True)
    return data.getvalue()


def _printed(
    words: list[str], run: Callable[[Sequence[str]], int], *, draw: bool
) -> tuple[int, str]:
    """Return a command's exit code, and what it prints."""
    if draw and words[0] != "run":
        words = [*words, "--plot"]
    if "--formulas" in words:
        # What a user's file declares would stay in this process' registry.
        path = str(Path(__file__).parents[1])
        done = subprocess.run(
            [sys.executable, "-m", "sweeps", *words],
            env={**os.environ, "PYTHONPATH": path},
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout
    with redirect_stdout(StringIO()) as printed:
        code = run([*words, "--no-plot"] if words[0] == "run" and not draw else words)
    return code, printed.getvalue()


def _lines(text: str) -> list[str]:
    return text.strip().splitlines()


def _first(text: str, most: int) -> list[str]:
    """Return the first screen: what stands before the files written and the values taken."""
    lines = [line.rstrip() for line in text.strip().splitlines()[:most]]
    ends = (place for place, line in enumerate(lines) if line.startswith(("wrote ", "not given,")))
    return lines[: next(ends, most)]


def _asked(job: Job) -> str:
    """Return what is typed, with what is printed where that is known."""
    typed = job.python.strip() or "\n".join(f"$ {line}" for line in _lines(job.command))
    return typed if job.python or not job.screen else job.screen


def guide(jobs: Sequence[Job]) -> str:
    """Return the jobs as Markdown."""
    made = "Generated by `sweeps docs --jobs` from `specs/jobs/jobs.toml`; a test runs each."
    parts = ["# What people ask, and the commands that answer it", made]
    return "\n\n".join([*parts, *(section(place, job) for place, job in enumerate(jobs, 1))]) + "\n"


def section(place: int, job: Job) -> str:
    """Return one job as Markdown."""
    parts = [f"## {place}. {job.title}", job.question]
    for name, text in job.files.items():
        kind = Path(name).suffix.removeprefix(".").replace("py", "python")
        parts += [f"`{name}`:", f"```{kind}\n{text.strip()}\n```"]
    parts.append(f"```{'python' if job.python else ''}\n{_asked(job)}\n```")
    parts += [f"```\n{job.screen}\n```"] if job.python else []
    return "\n\n".join([*parts, job.look])


def notebook(place: int, job: Job) -> str:
    """Return one job as a Jupyter notebook with what its cells print."""
    cells: list[dict[str, Any]] = []

    def add(kind: str, text: str, printed: str = "", picture: bytes = b"") -> None:
        own: dict[str, Any] = {} if kind == "markdown" else {"execution_count": None, "outputs": []}
        if printed:
            lines = f"{printed}\n".splitlines(keepends=True)
            own["outputs"] = [{"name": "stdout", "output_type": "stream", "text": lines}]
        if picture:
            data = {"image/png": b64encode(picture).decode(), "text/plain": ["<Figure>"]}
            about = {"data": data, "metadata": {}, "output_type": "display_data"}
            own["outputs"] = [*own["outputs"], about]
        source = text.splitlines(keepends=True)
        about = {"cell_type": kind, "id": f"cell-{len(cells) + 1}", "metadata": {}}
        cells.append({**about, "source": source, **own})

    add("markdown", f"# {place}. {job.title}\n\n{job.question}")
    for name, text in job.files.items():
        add("code", f"%%writefile {name}\n{text.strip()}", f"Writing {name}")
    screens = re.split(r"^\$ .*\n", job.screen, flags=re.MULTILINE)[1:]
    for line, screen in zip(_lines(job.command), screens, strict=True):
        last = line == _lines(job.command)[-1]
        plot = " --plot" if job.figure and last and line.split()[1] != "run" else ""
        add("code", f"!{line}{plot} | head -{len(screen.rstrip().splitlines())}", screen.rstrip())
    if job.python:
        add("code", job.python.strip(), job.screen, job.picture)
    elif job.figure:
        show = f'from IPython.display import Image\n\nImage("{job.figure}")'
        add("code", show, picture=job.picture)
    add("markdown", job.look)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    whole = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


# The site.


@dataclass(slots=True)
class Site:
    """The pages by name, made from the declarations."""

    commands: click.Group
    summaries: Mapping[str, str]  # Of its commands, in their order
    jobs: Sequence[Job] = ()
    pages: dict[str, str] = field(default_factory=dict)
    _place: dict[str, str] = field(default_factory=dict)  # The page on which a quantity stands
    _users: dict[str, dict[str, str]] = field(default_factory=dict)  # By quantity: links
    _cited: dict[str, dict[str, str]] = field(default_factory=dict)  # By source: links

    def make(self) -> Mapping[str, str]:
        """Return the texts of all files by name."""
        load()
        for name in VOCABULARY:
            found = _candidates(name)
            self._place[name] = f"quantities-{_module(found[0].place)}" if found else GIVEN
        self._catalogue()
        self._algorithms()
        self._quantities()
        self._sources()
        self._specs()
        self._commands()
        self._guide()
        return {
            **{f"{name}.html": text for name, text in self.pages.items()},
            "style.css": STYLE.read_text("utf-8"),
        }

    def _page(self, name: str, title: str, body: Iterable[str]) -> None:
        menu = " ".join(_link(file, text) for file, text in MENU.items())
        self.pages[name] = (
            f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8"/>\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1"/>\n'
            f'<title>{escape(title)}</title>\n<link rel="stylesheet" href="style.css"/>\n</head>\n'
            f"<body>\n<nav>{menu}</nav>\n<h1>{escape(title)}</h1>\n{''.join(body)}</body>\n</html>\n"
        )

    def _quantity(self, name: str) -> str:
        one = VOCABULARY[name]
        return _link(self._place[name], name, name, f"{one.meaning} [{one.units}]")

    def _with_symbols(self, names: Iterable[str]) -> str:
        return ", ".join(f"{mathml.of(VOCABULARY[one])} {self._quantity(one)}" for one in names)

    def _use(self, names: Iterable[str], key: str, link: str) -> None:
        for name in names:
            self._users.setdefault(name, {})[key] = link

    def _source(self, one: Formula | Algorithm, key: str, link: str) -> str:
        """Return where a formula or algorithm comes from, which now knows who cites it."""
        self._cited.setdefault(one.source.key, {})[key] = link
        return _link("sources", one.reference, f"source-{one.source.key}")

    def _sources(self) -> None:
        body = []
        for key, users in sorted(self._cited.items()):
            cited = ", ".join(link for _, link in sorted(users.items()))
            body.append(
                f'<section id="source-{escape(key)}">\n<p>{escape(SOURCES[key].at())}</p>\n'
            )
            body.append(_facts({"used by": cited}) + "</section>\n")
        self._page("sources", "Publications that formulas come from", body)

    # Quantities and formulas.

    def _quantities(self) -> None:
        for name in VOCABULARY:
            for one in _candidates(name):
                used = one.inputs if isinstance(one, Formula) else (one.of, *one.bind.values())
                self._use(used, name, self._quantity(name))
        names = sorted(VOCABULARY, key=lambda name: (self._place[name], name))
        index = []
        for page, group in groupby(names, key=lambda name: self._place[name]):
            of = list(group)
            title = "What is given" if page == GIVEN else _about(page)
            self._page(page, title, [self._section(name) for name in of])
            index.append(
                f"<h2>{_link(page, title)}</h2>\n<p>{', '.join(map(self._quantity, of))}</p>"
            )
        count = len(REGISTRY) + len(REGISTRY.calls)
        words = (
            f"<p>{len(names)} quantities, {count} formulas, by the subject they belong to.</p>\n"
        )
        self._page("quantities", "Quantities and formulas", [words, *index])

    def _section(self, name: str) -> str:
        one = VOCABULARY[name]
        unit = "a bare number" if one.units == "1" else one.units
        default = "" if one.default is None else f"; {one.default:g} where nothing gives it"
        lines = [
            f'<section id="{name}">\n<h3>{_code(name)} {mathml.of(one)}</h3>\n',
            f"<p>{escape(one.meaning)}</p>\n",
            f'<p class="quiet">{escape(unit)}; {escape(one.domain())}{default}</p>\n',
        ]
        lines += map(self._formula, _candidates(name))
        users = ", ".join(link for _, link in sorted(self._users.get(name, {}).items()))
        return "".join([*lines, _facts({"used by": users}), "</section>\n"])

    def _formula(self, one: Formula | Call) -> str:
        if isinstance(one, Call):
            bound = "; ".join(
                f"{self._quantity(outer)} as {self._quantity(inner)}"
                for inner, outer in one.bind.items()
            )
            facts = {"is": self._quantity(one.of), "with": bound, "of": _where(one.labels),
                     "where": _where(one.when)}  # fmt: skip
            return _facts(facts)
        said = one.title.lower() == VOCABULARY[one.returns].meaning.lower()
        words = f"<p>{escape(one.title)}</p>\n" if one.words and not said else ""
        facts = {
            "with": self._with_symbols(one.inputs), "where": _where(one.when),
            "assumes": escape("; ".join(one.assumes)),
            "source": self._source(one, one.returns, self._quantity(one.returns)),
        }  # fmt: skip
        return (
            f'<div id="formula-{one.name}">{words}'
            f'<div class="math">{mathml.equation(one.returns, one.expression)}</div>\n'
            f"<p>{_code(one.statement)}</p>\n{_facts(facts)}</div>\n"
        )

    def _algorithms(self) -> None:
        index = []
        for network in NETWORKS:
            of = sorted((a for a in ALGORITHMS.values() if a.topology == network), key=_order)
            page = f"algorithms-{network}"
            body = []
            for one in of:
                link = _link(page, ".".join(one.key), ".".join(one.key))
                body.append(self._algorithm(one, link))
            self._page(page, f"Algorithms on a network of kind {network}", body)
            links = ", ".join(_link(page, f"{a.collective} {a.name}", ".".join(a.key)) for a in of)
            index.append(f"<h2>{_link(page, network)}</h2>\n<p>{links}</p>\n")
        self._page("algorithms", "Algorithms by network", index)

    def _algorithm(self, one: Algorithm, link: str) -> str:
        stated = statements(one)
        used = tuple(dict.fromkeys(n for text in stated.values() for n in names(text)))
        self._use(used, ".".join(one.key), link)
        facts = {
            "with": self._with_symbols(used),
            "needs": escape("; ".join(each.text for each in one.requires)),
            "assumes": escape("; ".join(one.assumes)), "bound": escape(one.bound),
            "source": self._source(one, ".".join(one.key), link),
        }  # fmt: skip
        math = "".join(
            f'<div class="math">{mathml.equation(name, text)}</div>\n'
            for name, text in stated.items()
        )
        title = escape(f"{one.collective}: {one.name}")
        head = f'<section id="{".".join(one.key)}">\n<h3>{title}</h3>'
        return f"{head}\n<p>{escape(one.title)}</p>\n{math}{_facts(facts)}</section>\n"

    # Machines, models and software.

    def _catalogue(self) -> None:
        from sweeps.spec.software import load_software

        kinds: dict[str, tuple[tuple[str, str, Callable[[str], Any]], ...]] = {
            "machines": (("Machines", "hardware", load_hardware),),
            "models": (("Models", "models", load_model),),
            "software": (("Frameworks", "frameworks", load_framework),
                         ("Libraries that run collectives", "software", load_software)),
        }  # fmt: skip
        for page, groups in kinds.items():
            index = []
            for title, kind, read in groups:
                rows = []
                for name in spec_names(kind, ()):
                    one = read(name)
                    rows.append((_link(f"{kind}-{name}", name), escape(one.title)))
                    self._page(f"{kind}-{name}", one.title, self._entry(one, f"{kind}-{name}"))
                index += [f"<h2>{title}</h2>\n", _table(("name", "what it is"), rows)]
            self._page(page, MENU[page], index)

    def _entry(self, one: Any, page: str) -> Iterator[str]:
        """Yield the page of a machine, model, framework or library: each figure with its origin."""
        yield f"<p>{escape(' '.join(one.summary.split()))}</p>\n"
        yield f"<p>As {_code(one.name)} in commands and specs.</p>\n"
        source = getattr(one, "source", "")
        if source:
            yield f'<p class="quiet">Shapes: {escape(one.kind)}, {escape(source)}</p>\n'
        tables: dict[str, Mapping[str, Figure]] = {}
        if hasattr(one, "nodes"):
            tables |= {f"GPUs of generation {name}": of for name, of in one.nodes.items()}
            tables |= {f"Network {name} between nodes": of for name, of in one.fabrics.items()}
            tables |= {"Everywhere": one.shared}
            tables |= {"Time of the host to issue an operation, by environment": one.environment}
        else:
            tables["Figures"] = one.figures
            tables["Of a plan where nothing is said"] = getattr(one, "plan", {})
        for title, figures in tables.items():
            if figures:
                yield f"<h2>{escape(title)}</h2>\n"
                yield self._figures(figures, one.name, page, source)
        for title, name in (
            ("What holds unless it is given", "choices"),
            ("Precisions", "precisions"),
        ):
            chosen = getattr(one, name, None) or {}
            if chosen:
                yield f"<h2>{title}</h2>\n"
                each = ((_code(key), escape(str(c.value)), escape(c.kind), escape(c.source))
                        for key, c in chosen.items())  # fmt: skip
                yield _table(("what", "value", "kind", "origin"), each)
        options = getattr(one, "options", None) or {}
        if options:
            rows = [(_code(f"{one.name}+{key}"), escape(of.summary)) for key, of in options.items()]
            yield f"<h2>Options</h2>\n{_table(('option', 'meaning'), rows)}"

    def _figures(self, figures: Mapping[str, Figure], name: str, page: str, above: str = "") -> str:
        self._use((n for n in figures if n in VOCABULARY), page, _link(page, name))
        rows = []
        for key, one in figures.items():
            shown = format_quantity(one.value, one.units)
            shown += f" ± {one.uncertainty:.0%}" if one.uncertainty > 0.0 else ""
            what = self._quantity(key) if key in VOCABULARY else _code(key)
            # What is said above of all isn't said again.
            origin = "as above" if above and above in one.source else one.origin.source
            rows.append((what, escape(shown), escape(one.kind), escape(origin)))
        return _table(("figure", "value", "kind", "origin"), rows)

    # Specs, commands, jobs.

    def _specs(self) -> None:
        from sweeps.plots.schema import FORMS, KINDS

        def keys(known: Mapping[str, str]) -> str:
            return _table(("key", "meaning"), ((_code(k), escape(v)) for k, v in known.items()))

        body = [
            "<p>A sweep is a TOML file. Its axes and constants are any "
            f"{_link('quantities', 'quantity')} with its unit, or any label below.</p>\n",
            "<h2>Keys of a spec</h2>\n", keys(SETTINGS_KEYS),
            "<h2>Keys of a reduction</h2>\n", keys(KEYS),
            f"<p>operation: {escape(', '.join(REDUCTIONS))}.</p>\n",
            "<h2>Kinds of figures</h2>\n",
        ]  # fmt: skip
        for name, kind in KINDS.items():
            rows = [
                (_code(key), escape(one.meaning), escape(FORMS[one.form].meaning),
                 "" if one.default in (None, "", (), {}) else escape(str(one.default)))
                for key, one in kind.keys.items()
            ]  # fmt: skip
            body.append(f'<section id="figure-{name}">\n<h3>{_code(name)}</h3>\n')
            body.append(f"<p>{escape(kind.meaning)}</p>\n")
            body.append(_table(("key", "meaning", "value", "default"), rows) + "</section>\n")
        body.append("<h2>Labels</h2>\n")
        for name, label in LABELS.items():
            values = ", ".join(map(str, label.values))
            facts = {"values": escape(values), "default": escape(str(label.default or ""))}
            body.append(f'<section id="label-{name}">\n<h3>{_code(name)}</h3>\n')
            body.append(f"<p>{escape(label.meaning)}</p>\n{_facts(facts)}</section>\n")
        self._page("specs", "Specs: keys, figures, labels", [*body, *self._files()])

    def _files(self) -> Iterator[str]:
        """Yield what files of machines, models and frameworks of one's own may hold."""
        from sweeps.spec import framework, machine, model

        def figures(tables: Mapping[str, Mapping[str, Any]]) -> str:
            each = [
                (f"{table}.{key}", one) for table, of in tables.items() for key, one in of.items()
            ]
            known = VOCABULARY.keys()
            return _table(("key", "quantity", "unit", "values"), (
                (_code(key), (self._quantity if one.quantity in known else _code)(one.quantity),
                 escape("" if one.units == "1" else one.units),
                 escape(one.domain()) + "; needed" * one.required) for key, one in each
            ))  # fmt: skip

        yield "<h2>A machine's file</h2>\n<p>Each figure is a table of its own: "
        yield f"{_code('value')}, {_code('kind')} (measured, specification or assumed) and "
        yield f"{_code('source')}; with {_code('like')} the rest is another machine's.</p>\n"
        yield figures(machine.TABLES)
        for table, keys in machine.KEYS.items():
            prefix = f"{table}." if table else ""
            each = ", ".join(_code(prefix + key) for key in keys)
            yield f"<p>{escape(table or 'besides')}: {each}</p>\n"
        shapes = [name for name in model.FILE_SHAPES if name in VOCABULARY]
        yield "<h2>A model's file</h2>\n"
        yield f"<p>{', '.join(map(_code, model.KEYS))}; in {_code('shapes')}: "
        yield f"{', '.join(map(self._quantity, shapes))}; and {_code(model.PATTERN)}, the order of "
        yield f"a hybrid's layers: {_code('L')} or {_code('M')} with linear attention, "
        yield f"{_code('*')} with attention, {_code('E')} a mixture of experts by itself.</p>\n"
        yield "<h2>A framework's file</h2>\n"
        yield figures(framework.ENTRIES)

    def _commands(self) -> None:
        rows = []
        for name, words in self.summaries.items():
            command = self.commands.get_command(click.Context(self.commands), name)
            text = _Help(width=10_000)
            if command is not None:
                command.format_help(click.Context(command, info_name=f"sweeps {name}"), text)
            self._page(f"command-{name}", f"sweeps {name}", [text.getvalue()])
            rows.append((_link(f"command-{name}", name), escape(words)))
        self._page("commands", "Commands", [_table(("command", "what it does"), rows)])

    def _guide(self) -> None:
        body = ["<p>What distributed training costs in communication, memory, time and energy: "
                "what people ask, and the command that answers it.</p>\n"]  # fmt: skip
        body += [
            f'<p>{place}. <a href="#{job.name}">{escape(job.title)}</a></p>\n'
            for place, job in enumerate(self.jobs, 1)
        ]
        for place, job in enumerate(self.jobs, 1):
            body.append(f'<section id="{job.name}">\n<h2>{place}. {escape(job.title)}</h2>\n')
            body.append(f"<p>{escape(job.question)}</p>\n")
            body += [f"<p>{_code(name)}:</p>\n<pre>{escape(text)}</pre>\n"
                     for name, text in job.files.items()]  # fmt: skip
            typed = "" if job.screen else ' class="typed"'
            body.append(f"<pre{typed}>{escape(_asked(job))}</pre>\n")
            body.append(f"<pre>{escape(job.screen)}</pre>\n" if job.python and job.screen else "")
            called = dict.fromkeys(line.split()[1] for line in _lines(job.command))
            links = ", ".join(_link(f"command-{name}", name) for name in called)
            more = f" Options: {links}." if links else ""
            body.append(f"<p>{escape(job.look)}{more}</p>\n</section>\n")
        self._page("index", "Which question is yours?", body)


def _candidates(name: str) -> list[Formula | Call]:
    """Return what gives a quantity, the more general first, whatever was loaded first."""
    found = REGISTRY.candidates(name)
    return sorted(found, key=lambda one: (len(one.when), sorted(one.when.items()), one.name))


def _module(place: str) -> str:
    """Return what a page is called after the module in which something is declared."""
    path = Path(place.rpartition(":")[0])
    top = Path(overhead.__file__).parent
    parts = path.relative_to(top).with_suffix("").parts if path.is_relative_to(top) else (OWN,)
    return "-".join(part for part in parts if part != "__init__")


def _about(page: str) -> str:
    """Return what a page of quantities is about: what its module says of itself."""
    path = page.removeprefix("quantities-").replace("-", ".")
    if path == OWN:
        return "Formulas of one's own"
    words = (sys.modules[f"overhead.{path}"].__doc__ or path).split("\n\n")[0]
    return " ".join(words.split()).rstrip(".")


def _order(one: Algorithm) -> tuple[str, str]:
    return one.collective, one.name


def write_site(site: Site, folder: Path, *, overwrite: bool = False) -> int:
    """Write the site as a folder, whole or not at all, and return how many files it has.

    Raises
    ------
    InputError
        If something is there that isn't a site, or is one and may not be overwritten.
    """
    return write_folder(site.make, folder, ("index.html", "style.css"), overwrite=overwrite)


def write_notebooks(jobs: Sequence[Job], folder: Path, *, overwrite: bool = False) -> int:
    """Write the jobs as notebooks into a folder, as a site is, and return how many."""
    texts = {f"{n}-{job.name}.ipynb": notebook(n, job) for n, job in enumerate(jobs, 1)}
    return write_folder(lambda: texts, folder, tuple(texts), overwrite=overwrite)


def write_folder(
    make: Callable[[], Mapping[str, str]], folder: Path, marks: Sequence[str], *, overwrite: bool
) -> int:
    """Write texts as a folder; one that has the files that mark it may be replaced."""
    known = all((folder / name).is_file() for name in marks)
    if folder.exists() and not known:
        wrong, allowed = "is there already, and is no site", "name a folder that doesn't exist"
        refuse("FOLDER", str(folder), wrong, allowed)
    if known and not overwrite:
        refuse("FOLDER", str(folder), "exists already", "--overwrite replaces it")
    target = folder if known else check_output(folder)
    texts = make()
    made = temporary(target)
    try:
        with system_calls(target):
            made.mkdir()
            for name, text in texts.items():
                (made / name).write_text(text, encoding="utf-8", newline="\n")
            publish_folder(made, target, overwrite=overwrite)
    finally:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(made)
    return len(texts)
