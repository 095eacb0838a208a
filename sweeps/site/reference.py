"""A site to read offline: plain HTML of what the declarations say, and the guide by jobs.

Every page follows from declarations: the commands' own help, the keys of specs, the vocabulary,
the registry of formulas and algorithms, and the catalogue's files.  Statements are set in MathML
from their syntax trees, with the vocabulary's symbols.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Any

import click

import overhead
from overhead.collectives.algorithm import ALGORITHMS, NETWORKS, Algorithm
from overhead.everything import load
from overhead.expression import names
from overhead.formula import REGISTRY, Call, Formula
from overhead.labels import LABELS
from overhead.law import law_of
from overhead.quantity import VOCABULARY
from overhead.source import SOURCES
from overhead.statements import statements
from sweeps import mathml
from sweeps.bands import in_powers_of_two, percent
from sweeps.site import search
from sweeps.site.guide import body_of, guide_pages
from sweeps.site.jobs import Job, asked, command_lines
from sweeps.site.pieces import Help, facts_of, in_code, labels_of, link_to, table_of
from sweeps.spec.catalog import load_framework, load_hardware, load_model, spec_names
from sweeps.spec.fields import Figure
from sweeps.spec.reduction import KEYS, REDUCTIONS
from sweeps.spec.sweep import SETTINGS_KEYS
from sweeps.spec.units import format_quantity

STYLE = Path(__file__).parents[1] / "pages" / "files" / "site.css"
MENU = {
    "index": "Questions",
    "guide": "Guide",
    "commands": "Commands",
    "specs": "Specs",
    "quantities": "Quantities and formulas",
    "algorithms": "Algorithms",
    "machines": "Machines",
    "models": "Models",
    "software": "Software",
    "sources": "Sources",
}
# What nothing computes stands on a page of its own.
GIVEN = "quantities-given"
OWN = "own"  # What a user's own formulas give, likewise


@dataclass(slots=True)
class Site:
    """The pages by name, made from the declarations."""

    commands: click.Group
    summaries: Mapping[str, str]  # Of its commands, in their order
    jobs: Sequence[Job] = ()
    pages: dict[str, str] = field(default_factory=dict)
    _home: dict[str, str] = field(default_factory=dict)  # The page on which a quantity stands
    _users: dict[str, dict[str, str]] = field(default_factory=dict)  # By quantity: links
    _cited: dict[str, dict[str, str]] = field(default_factory=dict)  # By source: links

    def make(self) -> Mapping[str, str]:
        """Return the texts of all files by name."""
        load()
        for name in VOCABULARY:
            formulas = _candidates(name)
            self._home[name] = f"quantities-{_module(formulas[0].location)}" if formulas else GIVEN
        self._catalogue()
        self._algorithms()
        self._quantities()
        self._sources()
        self._specs()
        self._commands()
        pages = guide_pages()
        for page in pages:
            self._page(page.file, page.title, body_of(page, pages), page.language)
        self._jobs()
        return {
            **{f"{name}.html": text for name, text in self.pages.items()},
            "style.css": STYLE.read_text("utf-8"),
            search.FILE: search.search_script(self.pages),
        }

    def _page(self, name: str, title: str, body: Iterable[str], language: str = "en") -> None:
        menu = " ".join(link_to(file, text) for file, text in MENU.items())
        self.pages[name] = (
            f'<!DOCTYPE html>\n<html lang="{language}">\n<head>\n<meta charset="utf-8"/>\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1"/>\n'
            f'<title>{escape(title)}</title>\n<link rel="stylesheet" href="style.css"/>\n'
            f'<script src="{search.FILE}" defer="defer"></script>\n</head>\n'
            f"<body>\n<nav>{menu}</nav>\n<h1>{escape(title)}</h1>\n{''.join(body)}</body>\n</html>\n"
        )

    def _quantity(self, name: str) -> str:
        quantity = VOCABULARY[name]
        return link_to(self._home[name], name, name, f"{quantity.meaning} [{quantity.units}]")

    def _with_symbols(self, names: Iterable[str]) -> str:
        return ", ".join(f"{mathml.of(VOCABULARY[name])} {self._quantity(name)}" for name in names)

    def _use(self, names: Iterable[str], key: str, link: str) -> None:
        for name in names:
            self._users.setdefault(name, {})[key] = link

    def _source(self, declaration: Formula | Algorithm, key: str, link: str) -> str:
        """Return where a formula or algorithm comes from, which now knows who cites it."""
        self._cited.setdefault(declaration.source.key, {})[key] = link
        return link_to("sources", declaration.reference, f"source-{declaration.source.key}")

    def _sources(self) -> None:
        body = []
        for key, users in sorted(self._cited.items()):
            cited = ", ".join(link for _, link in sorted(users.items()))
            body.append(
                f'<section id="source-{escape(key)}">\n<p>{escape(SOURCES[key].at())}</p>\n'
            )
            body.append(facts_of({"used by": cited}) + "</section>\n")
        self._page("sources", "Publications that formulas come from", body)

    # Quantities and formulas.

    def _quantities(self) -> None:
        for name in VOCABULARY:
            for candidate in _candidates(name):
                used = (
                    candidate.inputs
                    if isinstance(candidate, Formula)
                    else (candidate.of, *candidate.bind.values())
                )
                self._use(used, name, self._quantity(name))
        names = sorted(VOCABULARY, key=lambda name: (self._home[name], name))
        index = []
        for page, group in groupby(names, key=lambda name: self._home[name]):
            of = list(group)
            title = "What is given" if page == GIVEN else _about(page)
            self._page(page, title, [self._section(name) for name in of])
            index.append(
                f"<h2>{link_to(page, title)}</h2>\n<p>{', '.join(map(self._quantity, of))}</p>"
            )
        count = len(REGISTRY) + len(REGISTRY.calls)
        words = (
            f"<p>{len(names)} quantities, {count} formulas, by the subject they belong to.</p>\n"
        )
        self._page("quantities", "Quantities and formulas", [words, *index])

    def _section(self, name: str) -> str:
        quantity = VOCABULARY[name]
        unit = "a bare number" if quantity.units == "1" else quantity.units
        default = (
            "" if quantity.default is None else f"; {quantity.default:g} where nothing gives it"
        )
        lines = [
            f'<section id="{name}">\n<h3>{in_code(name)} {mathml.of(quantity)}</h3>\n',
            f"<p>{escape(quantity.meaning)}</p>\n",
            f'<p class="quiet">{escape(unit)}; {escape(quantity.domain())}{default}</p>\n',
        ]
        lines += map(self._formula, _candidates(name))
        users = ", ".join(link for _, link in sorted(self._users.get(name, {}).items()))
        return "".join([*lines, facts_of({"used by": users}), "</section>\n"])

    def _formula(self, declaration: Formula | Call) -> str:
        if isinstance(declaration, Call):
            bound = "; ".join(
                f"{self._quantity(outer)} as {self._quantity(inner)}"
                for inner, outer in declaration.bind.items()
            )
            facts = {
                "is": self._quantity(declaration.of),
                "with": bound,
                "of": labels_of(declaration.labels),
                "where": labels_of(declaration.when),
            }
            return facts_of(facts)
        said = declaration.title.lower() == VOCABULARY[declaration.returns].meaning.lower()
        words = f"<p>{escape(declaration.title)}</p>\n" if declaration.words and not said else ""
        facts = {
            "with": self._with_symbols(declaration.inputs),
            "where": labels_of(declaration.when),
            "assumes": escape("; ".join(declaration.assumes)),
            "laws": escape("; ".join(stated.lines() if (stated := law_of(declaration)) else ())),
            "source": self._source(
                declaration, declaration.returns, self._quantity(declaration.returns)
            ),
        }
        equation = mathml.equation(declaration.returns, declaration.expression)
        return (
            f'<div id="formula-{declaration.name}">{words}<div class="math">{equation}</div>\n'
            f"<p>{in_code(declaration.statement)}</p>\n{facts_of(facts)}</div>\n"
        )

    def _algorithms(self) -> None:
        index = []
        for network in NETWORKS:
            of = sorted((a for a in ALGORITHMS.values() if a.topology == network), key=_order)
            page = f"algorithms-{network}"
            body = []
            for algorithm in of:
                link = link_to(page, ".".join(algorithm.key), ".".join(algorithm.key))
                body.append(self._algorithm(algorithm, link))
            self._page(page, f"Algorithms on a network of kind {network}", body)
            links = ", ".join(
                link_to(page, f"{a.collective} {a.name}", ".".join(a.key)) for a in of
            )
            index.append(f"<h2>{link_to(page, network)}</h2>\n<p>{links}</p>\n")
        self._page("algorithms", "Algorithms by network", index)

    def _algorithm(self, algorithm: Algorithm, link: str) -> str:
        stated = statements(algorithm)
        used = tuple(dict.fromkeys(n for text in stated.values() for n in names(text)))
        self._use(used, ".".join(algorithm.key), link)
        facts = {
            "with": self._with_symbols(used),
            "needs": escape("; ".join(requirement.text for requirement in algorithm.requires)),
            "assumes": escape("; ".join(algorithm.assumes)),
            "bound": escape(algorithm.bound),
            "source": self._source(algorithm, ".".join(algorithm.key), link),
        }
        math = "".join(
            f'<div class="math">{mathml.equation(name, text)}</div>\n'
            for name, text in stated.items()
        )
        title = escape(f"{algorithm.collective}: {algorithm.name}")
        head = f'<section id="{".".join(algorithm.key)}">\n<h3>{title}</h3>'
        return f"{head}\n<p>{escape(algorithm.title)}</p>\n{math}{facts_of(facts)}</section>\n"

    # Machines, models and software.

    def _catalogue(self) -> None:
        from sweeps.spec.software import load_software

        kinds: dict[str, tuple[tuple[str, str, Callable[[str], Any]], ...]] = {
            "machines": (("Machines", "hardware", load_hardware),),
            "models": (("Models", "models", load_model),),
            "software": (
                ("Frameworks", "frameworks", load_framework),
                ("Libraries that run collectives", "software", load_software),
            ),
        }
        for page, groups in kinds.items():
            index = []
            for title, kind, read in groups:
                rows = []
                for name in spec_names(kind, ()):
                    entry = read(name)
                    rows.append((link_to(f"{kind}-{name}", name), escape(entry.title)))
                    self._page(f"{kind}-{name}", entry.title, self._entry(entry, f"{kind}-{name}"))
                index += [f"<h2>{title}</h2>\n", table_of(("name", "what it is"), rows)]
            self._page(page, MENU[page], index)

    def _entry(self, spec: Any, page: str) -> Iterator[str]:
        """Yield the page of a machine, model, framework or library: each figure with its origin."""
        yield f"<p>{escape(' '.join(spec.summary.split()))}</p>\n"
        yield f"<p>As {in_code(spec.name)} in commands and specs.</p>\n"
        source = getattr(spec, "source", "")
        if source:
            yield f'<p class="quiet">Shapes: {escape(spec.kind)}, {escape(source)}</p>\n'
        tables: dict[str, Mapping[str, Figure]] = {}
        if hasattr(spec, "nodes"):
            tables |= {f"GPUs of generation {name}": of for name, of in spec.nodes.items()}
            tables |= {f"Network {name} between nodes": of for name, of in spec.fabrics.items()}
            tables |= {"Everywhere": spec.shared}
            tables |= {"Time of the host to issue an operation, by environment": spec.environment}
        else:
            tables["Figures"] = spec.figures
            tables["Of a plan where nothing is said"] = getattr(spec, "plan", {})
        for title, figures in tables.items():
            if figures:
                yield f"<h2>{escape(title)}</h2>\n"
                yield self._figures(figures, spec.name, page, source)
        for title, name in (
            ("What holds unless it is given", "choices"),
            ("Precisions", "precisions"),
        ):
            chosen = getattr(spec, name, None) or {}
            if chosen:
                yield f"<h2>{title}</h2>\n"
                each = (
                    (in_code(key), escape(str(c.value)), escape(c.kind), escape(c.source))
                    for key, c in chosen.items()
                )
                yield table_of(("what", "value", "kind", "origin"), each)
        options = getattr(spec, "options", None) or {}
        if options:
            rows = [
                (in_code(f"{spec.name}+{key}"), escape(of.summary)) for key, of in options.items()
            ]
            yield f"<h2>Options</h2>\n{table_of(('option', 'meaning'), rows)}"

    def _figures(self, figures: Mapping[str, Figure], name: str, page: str, above: str = "") -> str:
        self._use((n for n in figures if n in VOCABULARY), page, link_to(page, name))
        rows = []
        for key, figure in figures.items():
            shown = format_quantity(figure.value, figure.units, binary=in_powers_of_two(key))
            shown += f" ± {percent(figure.uncertainty)}" if figure.uncertainty > 0.0 else ""
            what = self._quantity(key) if key in VOCABULARY else in_code(key)
            # What is said above of all isn't said again.
            origin = "as above" if above and above in figure.source else figure.origin.source
            rows.append((what, escape(shown), escape(figure.kind), escape(origin)))
        return table_of(("figure", "value", "kind", "origin"), rows)

    # Specs, commands, jobs.

    def _specs(self) -> None:
        from sweeps.plots.schema import FORMS, KINDS

        def keys(known: Mapping[str, str]) -> str:
            return table_of(("key", "meaning"), ((in_code(k), escape(v)) for k, v in known.items()))

        body = [
            "<p>A sweep is a TOML file. Its axes and constants are any "
            f"{link_to('quantities', 'quantity')} with its unit, or any label below.</p>\n",
            "<h2>Keys of a spec</h2>\n",
            keys(SETTINGS_KEYS),
            "<h2>Keys of a reduction</h2>\n",
            keys(KEYS),
            f"<p>operation: {escape(', '.join(REDUCTIONS))}.</p>\n",
            "<h2>Kinds of figures</h2>\n",
        ]
        for name, kind in KINDS.items():
            rows = [
                (
                    in_code(key),
                    escape(setting.meaning),
                    escape(FORMS[setting.form].meaning),
                    "" if setting.default in (None, "", (), {}) else escape(str(setting.default)),
                )
                for key, setting in kind.keys.items()
            ]
            body.append(f'<section id="figure-{name}">\n<h3>{in_code(name)}</h3>\n')
            body.append(f"<p>{escape(kind.meaning)}</p>\n")
            body.append(table_of(("key", "meaning", "value", "default"), rows) + "</section>\n")
        body.append("<h2>Labels</h2>\n")
        for name, label in LABELS.items():
            values = ", ".join(map(str, label.values))
            facts = {"values": escape(values), "default": escape(str(label.default or ""))}
            body.append(f'<section id="label-{name}">\n<h3>{in_code(name)}</h3>\n')
            body.append(f"<p>{escape(label.meaning)}</p>\n{facts_of(facts)}</section>\n")
        self._page("specs", "Specs: keys, figures, labels", [*body, *self._files()])

    def _files(self) -> Iterator[str]:
        """Yield what files of machines, models and frameworks of one's own may hold."""
        from sweeps.spec import framework, machine, model

        def figures(tables: Mapping[str, Mapping[str, Any]]) -> str:
            each = [
                (f"{table}.{key}", entry)
                for table, of in tables.items()
                for key, entry in of.items()
            ]
            known = VOCABULARY.keys()
            return table_of(
                ("key", "quantity", "unit", "values"),
                (
                    (
                        in_code(key),
                        (self._quantity if entry.quantity in known else in_code)(entry.quantity),
                        escape("" if entry.units == "1" else entry.units),
                        escape(entry.domain()) + "; needed" * entry.required,
                    )
                    for key, entry in each
                ),
            )

        yield "<h2>A machine's file</h2>\n<p>Each figure is a table of its own: "
        yield f"{in_code('value')}, {in_code('kind')} (measured, specification or assumed) and "
        yield f"{in_code('source')}; with {in_code('like')} the rest is another machine's.</p>\n"
        yield figures(machine.TABLES)
        for table, keys in machine.KEYS.items():
            prefix = f"{table}." if table else ""
            each = ", ".join(in_code(prefix + key) for key in keys)
            yield f"<p>{escape(table or 'besides')}: {each}</p>\n"
        shapes = [name for name in model.FILE_SHAPES if name in VOCABULARY]
        yield "<h2>A model's file</h2>\n"
        yield f"<p>{', '.join(map(in_code, model.KEYS))}; in {in_code('shapes')}: "
        yield f"{', '.join(map(self._quantity, shapes))}; and {in_code(model.PATTERN)}, the order "
        yield f"of a hybrid's layers: {in_code('L')} or {in_code('M')} with linear attention, "
        yield f"{in_code('*')} with attention, {in_code('E')} an MoE feed-forward alone.</p>\n"
        yield "<h2>A framework's file</h2>\n"
        yield figures(framework.ENTRIES)

    def _commands(self) -> None:
        rows = []
        for name, words in self.summaries.items():
            command = self.commands.get_command(click.Context(self.commands), name)
            text = Help(width=10_000)
            if command is not None:
                command.format_help(click.Context(command, info_name=f"sweeps {name}"), text)
            self._page(f"command-{name}", f"sweeps {name}", [text.getvalue()])
            rows.append((link_to(f"command-{name}", name), escape(words)))
        self._page("commands", "Commands", [table_of(("command", "what it does"), rows)])

    def _jobs(self) -> None:
        body = [
            "<p>What distributed training costs in communication, memory, time and energy: "
            "what people ask, and the command that answers it.</p>\n"
        ]
        body += [
            f'<p>{index}. <a href="#{job.name}">{escape(job.title)}</a></p>\n'
            for index, job in enumerate(self.jobs, 1)
        ]
        for number, job in enumerate(self.jobs, 1):
            body.append(f'<section id="{job.name}">\n<h2>{number}. {escape(job.title)}</h2>\n')
            body.append(f"<p>{escape(job.question)}</p>\n")
            body += [
                f"<p>{in_code(name)}:</p>\n<pre>{escape(text)}</pre>\n"
                for name, text in job.files.items()
            ]
            typed = "" if job.screen else ' class="typed"'
            body.append(f"<pre{typed}>{escape(asked(job))}</pre>\n")
            body.append(f"<pre>{escape(job.screen)}</pre>\n" if job.python and job.screen else "")
            called = dict.fromkeys(line.split()[1] for line in command_lines(job.command))
            links = ", ".join(link_to(f"command-{name}", name) for name in called)
            more = f" Options: {links}." if links else ""
            body.append(f"<p>{escape(job.look)}{more}</p>\n</section>\n")
        self._page("index", "Which question is yours?", body)


def _candidates(name: str) -> list[Formula | Call]:
    """Return what gives a quantity, the more general first, whatever was loaded first."""
    formulas = REGISTRY.candidates(name)
    return sorted(
        formulas,
        key=lambda formula: (len(formula.when), sorted(formula.when.items()), formula.name),
    )


def _module(location: str) -> str:
    """Return what a page is called after the module in which something is declared."""
    path = Path(location.rpartition(":")[0])
    top = Path(overhead.__file__).parent
    parts = path.relative_to(top).with_suffix("").parts if path.is_relative_to(top) else (OWN,)
    parts = parts[1:] if path.suffix == ".csv" else parts  # A table is of a subject
    return "-".join(part for part in parts if part != "__init__")


def _about(page: str) -> str:
    """Return what a page of quantities is about: what its module says of itself."""
    path = page.removeprefix("quantities-").replace("-", ".")
    if path == OWN:
        return "Formulas of one's own"
    words = (sys.modules[f"overhead.{path}"].__doc__ or path).split("\n\n")[0]
    return " ".join(words.split()).rstrip(".")


def _order(algorithm: Algorithm) -> tuple[str, str]:
    return algorithm.collective, algorithm.name
