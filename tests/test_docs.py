"""The site says what the declarations say; the guide's jobs print what it shows."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from overhead.collectives.algorithm import ALGORITHMS
from overhead.formula import REGISTRY
from overhead.labels import LABELS
from overhead.quantity import VOCABULARY
from overhead.statements import statements
from sweeps.cli import COMMANDS, commands, run
from sweeps.errors import InputError, RunError
from sweeps.mathml import equation, symbol
from sweeps.plots.schema import KINDS
from sweeps.site.jobs import Job, guide, read_jobs, run_job, section
from sweeps.site.reference import Site
from sweeps.site.write import write_site
from sweeps.spec.catalog import load_hardware, spec_names
from sweeps.spec.framework import ENTRIES
from sweeps.spec.machine import TABLES
from sweeps.spec.sweep import SETTINGS_KEYS
from tests.maintenance.cells import run_cells
from tests.maintenance.notebooks import FOLDER as NOTEBOOKS
from tests.maintenance.notebooks import notebook
from tests.tables import examples

DOCUMENT = Path(__file__).parents[1] / "outputs" / "gallery" / "jobs.md"
JOBS = read_jobs()
TOURS = read_jobs("tours")
ALL = (*JOBS, *TOURS)
NASTY = Job("nasty", "<b>&\"'", "a < b & c", "<script>", "sweeps plan '<i>'", screen="</pre>&")


def new_site(*jobs: Job) -> Site:
    return Site(commands, COMMANDS, jobs)


@pytest.fixture(scope="module")
def files() -> Mapping[str, str]:
    return new_site(*JOBS, NASTY).make()


@pytest.fixture(scope="module")
def trees(files: Mapping[str, str]) -> dict[str, ElementTree.Element]:
    # A page is XML as well: nothing in it is unescaped, nothing is left open.
    pages = {name: text for name, text in files.items() if name.endswith(".html")}
    return {name: ElementTree.fromstring(text) for name, text in pages.items()}


def places(trees: Mapping[str, ElementTree.Element]) -> list[tuple[str, str]]:
    return [
        (page, one.attrib["id"])
        for page, tree in trees.items()
        for one in tree.iter()
        if "id" in one.attrib
    ]


@pytest.mark.thorough
def test_links_lead_somewhere(trees: dict[str, ElementTree.Element]) -> None:
    known = places(trees)
    assert len(known) == len(set(known))
    ends = {*known, *((page, "") for page in trees)}
    links = [(page, one.attrib["href"]) for page, tree in trees.items() for one in tree.iter("a")]
    for page, link in links:
        if link.startswith("https://"):
            continue
        file, _, position = link.partition("#")
        assert (file or page, position) in ends, (page, link)
    # Every page is reached from the first.
    assert {link.partition("#")[0] for _, link in links} >= {*trees}


@pytest.mark.thorough
def test_everything_has_a_place(trees: dict[str, ElementTree.Element]) -> None:
    ids = {position for _, position in places(trees)}
    assert ids >= {*VOCABULARY, *(f"formula-{name}" for name in REGISTRY)}
    assert ids >= {".".join(key) for key in ALGORITHMS} | {f"label-{name}" for name in LABELS}
    assert ids >= {f"source-{formula.key}" for formula in REGISTRY.values()}
    assert ids >= {job.name for job in JOBS} | {f"figure-{kind}" for kind in KINDS}
    pages = {f"command-{name}.html" for name in COMMANDS}
    for kind in ("hardware", "models", "frameworks", "software"):
        pages |= {f"{kind}-{name}.html" for name in spec_names(kind)}
    assert pages <= {*trees}


def test_formulas_and_users_refer_to_one_another(files: Mapping[str, str]) -> None:
    for formula in REGISTRY.values():
        if formula.returns == "step_time":
            for name in formula.inputs:
                page = next(text for text in files.values() if f'<section id="{name}">' in text)
                section = page.split(f'<section id="{name}">')[1].split("</section>")[0]
                assert "#step_time" in section.split("used by")[1]


def test_statement_source_and_figures_are_shown(files: Mapping[str, str]) -> None:
    ring = ALGORITHMS["ring", "all_reduce", "ring"]
    page = files["algorithms-ring.html"].split('id="ring.all_reduce.ring"')[1]
    assert equation("time", statements(ring)["time"]) in page
    assert ring.reference in page
    bandwidth = load_hardware("dgx-h100").figures["intra_bandwidth"]
    machine = files["hardware-dgx-h100.html"]
    assert "450 GB/s" in machine
    assert bandwidth.source in machine
    assert "--seq-len" in files["command-plan.html"]
    keys = [f"{table}.{key}" for table, of in {**TABLES, **ENTRIES}.items() for key in of]
    assert all(f"<code>{key}</code>" in files["specs.html"] for key in (*SETTINGS_KEYS, *keys))


def test_texts_are_escaped(files: Mapping[str, str]) -> None:
    own = '<script src="search.js" defer="defer"></script>'
    pages = [text for name, text in files.items() if name.endswith(".html")]
    assert all(text.replace(own, "").count("<script") == 0 for text in pages)
    assert "a &lt; b &amp; c" in files["index.html"]


def test_site_needs_nothing_else(files: Mapping[str, str]) -> None:
    needed = {
        match
        for text in files.values()
        for match in re.findall(r'(?:src|<link[^>]*href)="([^"]*)"', text)
    }
    assert needed == {"style.css", "search.js"}
    assert "fetch(" not in files["search.js"]
    assert not re.search(r"url\(|@import", files["style.css"])


def test_search_finds_what_has_a_name(
    files: Mapping[str, str], trees: dict[str, ElementTree.Element]
) -> None:
    assert len(files["search.js"]) < 500_000
    lines = files["search.js"].partition("\n];")[0].splitlines()[1:]
    index = [json.loads(line.rstrip(",")) for line in lines]
    ends = {*(f"{page}#{position}" for page, position in places(trees)), *trees}
    assert {link for *_, link in index} <= ends
    named = {(kind, name.split()[0]) for kind, name, *_ in index}
    assert named >= {("quantity", name) for name in VOCABULARY}
    assert named >= {("spec key", name) for name in (*LABELS, *KINDS, *SETTINGS_KEYS)}
    actual = {(kind, link) for kind, *_, link in index}
    assert actual >= {("machine", f"hardware-{name}.html") for name in spec_names("hardware")}
    assert actual >= {("model", f"models-{name}.html") for name in spec_names("models")}
    assert actual >= {("command", f"command-{name}.html") for name in COMMANDS}
    algorithms = {link for kind, *_, link in index if kind == "algorithm"}
    assert len(algorithms) >= len(ALGORITHMS)
    assert ["option", "plan --gpus"] in [[kind, name[:11]] for kind, name, *_ in index]


@pytest.mark.thorough
def test_site_is_the_same_again(files: Mapping[str, str]) -> None:
    assert new_site(*JOBS, NASTY).make() == files


@pytest.mark.parametrize(
    ("expression", "shown"),
    examples(__file__, "equations"),
)
def test_statements_as_equation(expression: str, shown: str) -> None:
    tree = ElementTree.fromstring(equation("time", expression))
    assert "".join(tree.itertext()) == f"T={shown}"


def test_symbols_are_equation() -> None:
    assert symbol(r"T'_{\mathrm{a\_b},1}").count("<msubsup>") == 1
    assert "a_b" in symbol(r"T'_{\mathrm{a\_b},1}")
    with pytest.raises(ValueError, match="closes a group"):
        symbol("a}")


def test_site_is_whole_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"index.html": "1", "style.css": ""}
    monkeypatch.setattr(Site, "make", lambda _: small)
    site = new_site()
    assert write_site(site, tmp_path / "site") == 2
    with pytest.raises(InputError, match="--overwrite"):
        write_site(site, tmp_path / "site")
    small["index.html"] = "2"
    write_site(site, tmp_path / "site", overwrite=True)
    assert (tmp_path / "site" / "index.html").read_text() == "2"
    small["no/such/folder"] = ""
    with pytest.raises(InputError):
        write_site(site, tmp_path / "site", overwrite=True)
    (tmp_path / "own").mkdir()
    with pytest.raises(InputError, match="no site"):
        write_site(site, tmp_path / "own", overwrite=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["own", "site"]
    assert (tmp_path / "site" / "index.html").read_text() == "2"


def test_command_wants_a_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["docs"]) == 2
    assert capsys.readouterr().err.startswith("sweeps: a site needs a folder; ")


# The guide.


@pytest.mark.thorough_cases("plan", "network", "scale-up", "formula")
@pytest.mark.parametrize(
    ("number", "job"), list(enumerate(JOBS, 1)), ids=[job.name for job in JOBS]
)
def test_job_prints_what_the_guide_shows(number: int, job: Job) -> None:
    before = {*ALGORITHMS}
    done = run_job(job, run)
    text = section(number, done)
    assert before == {*ALGORITHMS}
    assert text in DOCUMENT.read_text(encoding="utf-8"), (
        "sweeps docs --jobs > outputs/gallery/jobs.md"
    )


# Notebooks.


@pytest.mark.thorough
@pytest.mark.parametrize(("number", "job"), list(enumerate(ALL, 1)), ids=[job.name for job in ALL])
def test_a_notebook_is_what_its_cells_show(number: int, job: Job) -> None:
    """Each cell is run, and shows what is stored; of pictures that there is one, and its size."""
    shown = run_cells([cell.strip() for cell in job.cells], job.files)
    stored = json.loads((NOTEBOOKS / f"{number}-{job.name}.ipynb").read_text(encoding="utf-8"))
    made = json.loads(notebook(number, job, shown))
    pictures = []
    for own in (stored, made):
        outputs = [output for cell in own["cells"] for output in cell.get("outputs", ())]
        data = [output["data"] for output in outputs if "data" in output]
        pictures.append([output.pop("image/png") for output in data if "image/png" in output])
    assert stored == made, "python -m tests.maintenance.notebooks"
    assert len(pictures[0]) == len(pictures[1]) >= 1
    for picture in (picture for several in pictures for picture in several):
        assert b64decode(picture).startswith(b"\x89PNG")
        assert 5_000 < len(picture) < 80_000  # 60 kB


def test_notebooks_ask_python() -> None:
    for job in ALL:
        assert job.cells[0].lstrip().startswith("import sweeps\n")
        assert not any(line[:1] in "!%" for cell in job.cells for line in cell.splitlines() if line)
    (tour,) = TOURS
    assert len(tour.cells) == 10


@pytest.mark.thorough
def test_cells_show_what_a_notebook_shows() -> None:
    """What is printed, the last expression, figures that are open; nothing after a semicolon."""
    cells = [
        "import sweeps\nprint(open('x.csv').read())",
        "sweeps.overlap(compute='50ms', comm='10ms', efficiency=0.8)",
        "1 + 1;",
        "from matplotlib import pyplot\npyplot.plot([1, 2]);",
        "",
    ]
    printed, answer, nothing, figure, empty = run_cells(cells, {"x.csv": "1"})
    assert printed == [{"name": "stdout", "output_type": "stream", "text": ["1\n"]}]
    (one,) = answer
    assert one["data"]["text/plain"][0].startswith("overlapped it takes 52 ms rather than 60 ms")
    assert one["data"]["text/html"][0].startswith("<div><b>overlapped")
    assert nothing == empty == []
    assert b64decode(figure[0]["data"]["image/png"]).startswith(b"\x89PNG")
    with pytest.raises(RunError, match="ZeroDivisionError"):
        run_cells(["1 / 0"], {})


def test_notebooks_are_a_cell_a_piece_of_code() -> None:
    job = replace(JOBS[0], files={"x.csv": "1\n"}, cells=("\nprint('A')\n", "2"))
    cells = json.loads(notebook(1, job, run_cells(["print('A')", "2"], {})))["cells"]
    assert ["".join(cell["source"]) for cell in cells[1:4]] == [
        "%%writefile x.csv\n1",
        "print('A')",
        "2",
    ]
    assert cells[2]["outputs"][0]["text"] == ["A\n"]
    assert cells[3]["outputs"][0]["data"] == {"text/plain": ["2"]}


def test_guide_has_the_jobs_alone() -> None:
    document = DOCUMENT.read_text(encoding="utf-8")
    assert document.startswith(guide(())[:-1])
    assert len(re.findall(r"^## ", document, re.M)) == len(JOBS) == 9
