"""The guide's pages: the subset of Markdown that the site has, true screens, links that lead.

``PROOFS=write python -m pytest -n0 -m "" tests/test_guide.py`` writes screens and tables anew.
"""

from __future__ import annotations

import os
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.etree import ElementTree

import click
import pytest

from overhead.labels import LABELS
from overhead.quantity import VOCABULARY
from sweeps.bands import change_by
from sweeps.cli import COMMANDS, commands, run
from sweeps.site.guide import FOLDER, INDEX, Page, body_of, guide_pages
from sweeps.site.jobs import first_screen, printed_by, terminal
from sweeps.site.markdown import Block, anchor, blocks, inline, to_html
from sweeps.spec.names import OTHER_NAMES
from tests.benchmarks.conftest import BULK, SEEN, limit_of
from tests.maintenance.references import algorithm_table
from tests.tables import examples
from tests.test_words import BANNED

TOP = Path(__file__).parents[1]
WRITE = os.environ.get("PROOFS") in ("write", "new")
PAGES = guide_pages()
LONGEST_PAGE = 150
# Lines that can't run as they stand: they need a file, or more.
PLACEHOLDER = re.compile(
    r"\.\.|(?:trace|calibrate|tune)$|--from-traces |--validate |\b[A-Z]{4,}\b|\.log|json\.gz"
)
every_page = pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])


def code_of(page: Page, language: str) -> list[Block]:
    """Return a page's code of a language."""
    return [block for block in blocks(page.text) if (block.kind, block.mark) == ("code", language)]


def prose_of(page: Page) -> Iterator[str]:
    """Yield what a page says outside of code, and of tables that are made."""
    for block in blocks(re.sub(r"^<!-- \w+: .*?<!-- end -->", "", page.text, flags=re.S | re.M)):
        if block.kind != "code":
            yield re.sub(r"`[^`]*`", "`", " ".join(block.lines))


def typed_in(page: Page) -> Iterator[str]:
    """Yield the command lines of a page, from its code and from its text."""
    for block in blocks(page.text):
        if block.kind == "code" and block.mark in ("sh", "console"):
            yield from (line[2:] for line in block.lines if line.startswith("$ sweeps "))
        elif block.kind != "code":
            yield from re.findall(r"`(sweeps [^`]+)`", " ".join(block.lines))


# The subset.


@every_page
def test_pages_are_of_the_subset(page: Page) -> None:
    html = "".join(body_of(page, PAGES))
    ElementTree.fromstring(f"<body>{html}</body>")
    assert page.title
    assert len(page.text.splitlines()) <= LONGEST_PAGE
    if page.name not in (INDEX, "modules") and page.language == "en":
        first = next(block for block in blocks(page.text) if block.kind == "paragraph")
        assert re.match(r"This page (?:answers|is for users of)", first.lines[0])


@pytest.mark.parametrize("text", examples(__file__, "what_the_subset_lacks_is_refused"))
def test_what_the_subset_lacks_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"subset|differ|closed"):
        "".join(to_html(text, str))


def test_the_subset_as_html() -> None:
    text = (
        "# T\n\nOne `a < b` and **bold `c`**,\ntwo [x](y.md#z).\n\n- first\n  goes on\n- second\n\n"
        "1. one\n\n## A `b`: c\n\n| h | i |\n| --- | ---: |\n| 1 \\| 2 | `x \\| y` |\n\n"
        "```sh\n$ <\n```\n"
    )
    made = "".join(to_html(text, lambda link: "" if link == "no" else f"to-{link}"))
    assert made == (
        "<p>One <code>a &lt; b</code> and <strong>bold <code>c</code></strong>, two "
        '<a href="to-y.md#z">x</a>.</p>\n<ul>\n<li>first goes on</li>\n<li>second</li>\n</ul>\n'
        '<ol>\n<li>one</li>\n</ol>\n<h2 id="a-b-c">A <code>b</code>: c</h2>\n'
        '<div class="wide"><table><tr><th>h</th><th>i</th></tr>\n'
        "<tr><td>1 | 2</td><td><code>x | y</code></td></tr>\n</table></div>\n<pre>$ &lt;</pre>\n"
    )
    assert inline("[a](no) b", lambda _: "") == "a b"


# Links, words, modules.


@every_page
def test_links_lead_to_what_is_there(page: Page) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", page.text):
        if target.startswith("https://"):
            continue
        file, _, position = target.partition("#")
        path = FOLDER / file if file else FOLDER / f"{page.name}.md"
        assert path.resolve().exists(), target
        if position:
            headings = [b.lines[0] for b in blocks(path.read_text("utf-8")) if b.kind == "heading"]
            assert position in map(anchor, headings), target


def test_the_index_has_every_page() -> None:
    index = PAGES[0]
    for page in PAGES[1:]:
        assert f"({page.name}.md)" in index.text
    assert {page.name for page in PAGES if page.language == "zh"} == set(
        "start.zh background.zh plan.zh collectives.zh".split()
    )


@pytest.mark.parametrize("page", [page for page in PAGES if page.language == "zh"], ids=str)
def test_translations_have_the_same_commands_and_figures(page: Page) -> None:
    english = next(one for one in PAGES if f"{one.name}.zh" == page.name)
    assert [*typed_in(page)] == [*typed_in(english)]
    tables = [
        [
            [re.findall(r"\d[\d,.]*", line) for line in block.lines]
            for block in blocks(one.text)
            if block.kind == "table"
        ]
        for one in (page, english)
    ]
    assert tables[0] == tables[1]


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page.language == "en"],
    ids=[page.name for page in PAGES if page.language == "en"],
)
def test_pages_are_in_the_words_of_the_field(page: Page) -> None:
    kept = {"say/tell"} | ({"headless"} if page.name == INDEX else set())
    for text in prose_of(page):
        for name, pattern in BANNED.items():
            if name not in kept:
                assert not re.search(pattern, text), (name, re.search(pattern, text), text)


def test_the_map_of_modules_is_the_folders() -> None:
    page = next(page for page in PAGES if page.name == "modules")
    named = set(re.findall(r"`((?:overhead|sweeps)/[^`]+)`", page.text))
    texts = set()
    for package in ("overhead", "sweeps"):
        for path in (TOP / package).iterdir():
            if path.is_dir() and path.name != "__pycache__":
                texts.add(f"{package}/{path.name}/")
            elif path.suffix == ".py" and not path.name.startswith("__"):
                texts.add(f"{package}/{path.name}")
    assert named == texts
    for match in re.findall(r"^\| `((?:specs|tests|outputs)/[^`]*)`", page.text, re.M):
        assert (TOP / match).is_dir()


# Tables that declarations and files give.


def band_table() -> str:
    """Return the bands of ``bands.toml`` as a table."""
    bands = tomllib.loads((TOP / "specs/measured/bands.toml").read_text("utf-8"))
    lines = ["| class | measured / predicted, 80 % interval |", "| --- | --- |"]
    for name in ("step_time", "memory"):
        lines += [
            f"| {band['words']} | {change_by(band['low'])} to {change_by(band['high'])} |"
            for band in bands[name].values()
        ]
    return "\n".join(lines) + "\n"


def speed_table() -> str:
    """Return what benchmarks aim at and saw, as a table."""
    lines = ["| benchmark | aim | seen | passes up to |", "| --- | --- | --- | --- |"]
    for name, row in SEEN.items():
        lines.append(f"| {name} | {row['aim']} | {row['seen']} | {limit_of(name):.3g} |")
    return "\n".join(lines) + "\n"


def bulk_table() -> str:
    """Return the same of bulk work, with what other calculators take."""
    lines = ["| work, by | aim | seen | passes up to | others |", "| --- | --- | --- | --- | --- |"]
    for name, row in BULK.items():
        limit = f"{limit_of(name):.3g}"
        lines.append(f"| {name} | {row['aim']} | {row['seen']} | {limit} | {row['peers']} |")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("name", "mark", "make"),
    [
        ("develop", "<!-- speed: tests/benchmarks/seen.csv -->\n", speed_table),
        ("develop", "<!-- speed: tests/benchmarks/bulk.csv -->\n", bulk_table),
        ("algorithms", "<!-- algorithms: overhead/collectives -->\n", algorithm_table),
        ("accuracy", "<!-- bands: specs/measured/bands.toml -->\n", band_table),
    ],
)
def test_tables_are_the_declarations(name: str, mark: str, make: object) -> None:
    path = FOLDER / f"{name}.md"
    before, rest = path.read_text(encoding="utf-8").split(mark)
    table, end, after = rest.partition("<!-- end -->")
    made = make()  # type: ignore[operator]
    if WRITE:
        path.write_text(f"{before}{mark}{made}{end}{after}", encoding="utf-8")
        table = made
    assert table == made


# Screens and code.

SCREENS = [
    pytest.param(page, index, id=f"{page.name}-{index}-{block.lines[0].split()[2]}")
    for page in PAGES
    for index, block in enumerate(code_of(page, "console"))
]


def screen_of(block: Block) -> list[str]:
    """Return a block of commands with what they print."""
    shown: list[str] = []
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch, terminal():
        patch.chdir(folder)
        for line in block.lines:
            if line.startswith("$ "):
                code, printed = printed_by(shlex.split(line)[2:], run)
                assert code == 0, line
                shown += [line, *first_screen(printed, block.most or 100), ""]
    return shown[:-1]


@pytest.mark.thorough_cases("plan", "buy", "tune", "analysis", "validate", "normal", "hops")
@pytest.mark.parametrize(("page", "number"), SCREENS)
def test_screens_are_what_commands_print(page: Page, number: int) -> None:
    block = code_of(page, "console")[number]
    made = screen_of(block)
    if WRITE:
        path = FOLDER / f"{page.name}.md"
        fence = f"```console{f' {block.most}' if block.most else ''}\n"
        old, new = (f"{fence}{chr(10).join(lines)}\n```" for lines in (block.lines, made))
        path.write_text(path.read_text("utf-8").replace(old, new), encoding="utf-8")
    else:
        assert [*block.lines] == made


@every_page
def test_commands_have_the_options_that_are_named(page: Page) -> None:
    other_texts = {f"--{name.replace('_', '-')}" for name in (*VOCABULARY, *LABELS, *OTHER_NAMES)}
    for line in typed_in(page):
        words = line.split()
        if words[1].startswith("-"):
            continue
        assert words[1] in COMMANDS, line
        command = commands.get_command(click.Context(commands), words[1])
        assert command is not None
        known = {"--help", "--help-all"}
        known |= {opt for param in command.get_params(click.Context(command)) for opt in param.opts}
        options = {word.split("=")[0] for word in words if re.match(r"--[a-z]", word)}
        assert options <= known | (
            other_texts if words[1] in ("collective", "analysis", "plan") else set()
        ), line


@every_page
def test_options_in_text_exist(page: Page) -> None:
    known = {"--help", "--help-all"} | {
        f"--{name.replace('_', '-')}" for name in (*VOCABULARY, *LABELS, *OTHER_NAMES)
    }
    for name in COMMANDS:
        command = commands.get_command(click.Context(commands), name)
        assert command is not None
        known |= {opt for param in command.get_params(click.Context(command)) for opt in param.opts}
    for block in blocks(page.text):
        if block.kind == "code":
            continue
        text = " ".join(block.lines)
        if page.name.startswith("coming-from"):
            # What stands on the left is another program's.
            text = " ".join(re.findall(r"`(sweeps [^`]*)`", text))
        for typed in re.findall(r"`([^`]+)`", text):
            if typed.startswith(("--", "sweeps ")):
                for option in re.findall(r"(?<![\w-])--[a-z][\w-]*", typed):
                    assert option in known, option


MOVES = [
    pytest.param(line, id=f"{page.name.removeprefix('coming-from-')}-{index}-{line.split()[1]}")
    for page in PAGES
    if page.name.startswith("coming-from")
    for index, line in enumerate(typed_in(page))
    if not PLACEHOLDER.search(line)
]


@pytest.mark.thorough_cases("plan", "tune", "analysis", "run", "validate")
@pytest.mark.parametrize("line", MOVES)
def test_lines_for_users_of_other_calculators_run(line: str) -> None:
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        code, printed = printed_by(shlex.split(line)[1:], run)
    assert code == 0
    assert printed or "--help" in line


PYTHON = [
    pytest.param("\n".join(block.lines), id=f"{page.name}-{index}")
    for page in PAGES
    for index, block in enumerate(code_of(page, "python"))
    if page.name != "extend"
]


@pytest.mark.thorough_cases("training", "tuner", "python-", "llm-analysis")
@pytest.mark.parametrize("code", PYTHON)
def test_code_runs(code: str) -> None:
    exec(code, {})


def test_the_spec_is_a_sweep() -> None:
    from sweeps.spec.sweep import read_sweep

    page = next(page for page in PAGES if page.name == "sweeps")
    (block,) = code_of(page, "toml")
    read = read_sweep(tomllib.loads("\n".join(block.lines)), bare_is_si=False)
    assert [axis.name for axis in read.axes] == ["nics_per_node", "ranks", "message_bytes"]


@pytest.mark.thorough
def test_an_algorithm_of_ones_own(tmp_path: Path) -> None:
    page = next(page for page in PAGES if page.name == "extend")
    (block,) = code_of(page, "python")
    (tmp_path / "own.py").write_text("\n".join(block.lines), encoding="utf-8")
    (line,) = (command for command in typed_in(page) if "own.py" in command)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        code, printed = printed_by([*shlex.split(line)[1:], "--json"], run)
    assert code == 0
    # Two latencies of 1 us, and 2 GB at 100 GB/s.
    assert '"latency_s": 0.020002' in printed
