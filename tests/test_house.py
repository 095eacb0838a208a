"""How the code is laid out: who imports whom, what loads when, how long files are, what is told."""

from __future__ import annotations

import ast
import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from enum import Enum
from functools import cache
from pathlib import Path
from types import FunctionType, ModuleType

import pytest

import overhead
import sweeps
from tests.each import each

ROOT = Path(__file__).parents[1]
PACKAGES = ("overhead", "sweeps")
LONGEST_FILE = 700
# Each wing of sweeps imports only those before it.
WINGS = tuple(
    (
        "version asked former elsewhere errors latex origin wrapping display spec impossible bands "
        "engine measured_step store result contracts traces hop_study validate plots calibration "
        "own_formulas job idle prepared error_bar tuner blocks search launch api "
        "pages mathml site cli pictures accessor registering answers functions"
    ).split()
)
# What sweeps has at its top hands on to api and cli, and names ours for names of elsewhere.
ENTRIES = ("__init__", "__main__")
HEAVY = {"numpy", "xarray", "matplotlib", "netCDF4", "rich", "pandas"}
STANDARD = set(sys.stdlib_module_names)


def modules(*folders: str) -> list[Path]:
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


SOURCES = modules(*PACKAGES)
every_source = pytest.mark.parametrize("path", SOURCES, ids=named)


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def for_types_only(node: ast.AST) -> bool:
    """Tell whether a statement is ``if TYPE_CHECKING``."""
    test = node.test if isinstance(node, ast.If) else None
    return isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"


def imports(node: ast.AST, *, at_start: bool) -> Iterator[str]:
    """Yield the modules that a file imports, or only those that it imports when it is loaded."""
    for child in ast.iter_child_nodes(node):
        if for_types_only(child):
            continue
        if at_start and isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, "a relative import"
            yield from (f"{child.module}.{alias.name}" for alias in child.names)
        yield from imports(child, at_start=at_start)


def imported(path: Path, *, at_start: bool = False) -> set[str]:
    return set(imports(tree(path), at_start=at_start))


def package(module: str) -> str:
    return module.partition(".")[0]


def wing(module: str) -> str:
    """Return the wing of a module of sweeps."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def dotted(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 2 else parts)


# Who imports whom.


@pytest.mark.parametrize("path", modules("overhead"), ids=named)
def test_overhead_imports_numpy_and_itself(path: Path) -> None:
    assert {package(module) for module in imported(path)} <= STANDARD | {"numpy", "overhead"}


@pytest.mark.parametrize("path", modules("sweeps"), ids=named)
def test_wings_import_earlier_wings(path: Path) -> None:
    text = wing(dotted(path))
    if text in ENTRIES:
        allowed = {"api", "cli", "elsewhere", "errors", "functions", "registering", "version"}
    else:
        assert text in WINGS, f"{text} has no place in the order"
        allowed = set(WINGS[: WINGS.index(text) + 1])
    used = {wing(module) for module in imported(path) if package(module) == "sweeps"}
    # From the package itself comes what it hands on.
    assert used <= allowed


@pytest.fixture(scope="session")
def needs() -> dict[str, set[str]]:
    """Return what modules need to load; reads every source, which is no part of a test's time."""
    known = {dotted(path): path for path in SOURCES}
    return {name: set(_needed(path, known)) - {name} for name, path in known.items()}


def test_no_module_needs_itself_to_load(needs: dict[str, set[str]]) -> None:
    names: set[str] = set()
    while ready := {
        name for name, needed in needs.items() if name not in names and needed <= names
    }:
        names |= ready
    circle = {name: sorted(needs[name] - names) for name in needs if name not in names}
    assert not circle


def _needed(path: Path, known: dict[str, Path]) -> Iterator[str]:
    """Yield the modules of ours that a file imports to load."""
    for module in imported(path, at_start=True):
        if module in known:
            yield module
        elif (parent := module.rpartition(".")[0]) in known:
            yield parent


@pytest.mark.parametrize("path", modules("tests/simulator"), ids=named)
def test_the_simulator_is_independent(path: Path) -> None:
    allowed = STANDARD | {"tests"} | ({"pytest"} if path.name.startswith("test_") else set())
    used = imported(path)
    assert {package(module) for module in used} <= allowed
    ours = {module for module in used if package(module) == "tests"}
    assert all(module.startswith("tests.simulator") for module in ours)


# What is in a file.


@each("path", SOURCES)
def test_a_file_is_short(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LONGEST_FILE


def public(body: list[ast.stmt]) -> Iterator[ast.FunctionDef | ast.ClassDef]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            yield node
            if isinstance(node, ast.ClassDef):
                yield from public(node.body)


@every_source
def test_what_is_public_is_described(path: Path) -> None:
    module = tree(path)
    empty = not module.body
    assert empty or ast.get_docstring(module)
    assert not [node.name for node in public(module.body) if not ast.get_docstring(node)]


@pytest.mark.parametrize("module", [overhead, sweeps], ids=["overhead", "sweeps"])
def test_the_public_interface_is_documented_whole(module: ModuleType) -> None:
    """Whoever imports a package finds parameters, what comes back and what is raised."""
    assert set(module.__all__) <= set(dir(module))
    for name in module.__all__:
        attribute = getattr(module, name)
        if isinstance(attribute, FunctionType):
            text = attribute.__doc__ or ""
            parameters = inspect.signature(attribute).parameters
            assert not parameters or "Parameters\n" in text, name
            assert "Returns\n" in text, name
        elif isinstance(attribute, type) and not issubclass(attribute, Enum):
            fields = getattr(attribute, "__dataclass_fields__", ())
            assert not fields or "Attributes\n" in (attribute.__doc__ or ""), name


# What loads when: the command line has to answer at once.

LOADED = "import json, sys; print(json.dumps(sorted(sys.modules)))"
ALL = ["collective", "--N", "8", "--M", "1MiB", "--op", "all", "--topology", "all", "--json"]
COLLECTIVE = ["collective", "--topology", "ring", "--N", "8", "--M", "1KiB,1GiB"]
OVERLAP = ["overlap", "--compute", "50ms", "--comm", "10ms", "--efficiency", "0.8"]


@cache
def loaded(code: str, *arguments: str) -> set[str]:
    """Return the modules that are loaded after some code ran in a fresh interpreter."""
    ran = subprocess.run(
        [sys.executable, "-c", f"{code}\n{LOADED}", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return set(json.loads(ran.stdout.splitlines()[-1]))


def command(*arguments: str) -> set[str]:
    code = "import sys; from sweeps.cli import run; assert run(sys.argv[1:]) == 0"
    return loaded(code, *arguments)


def test_the_command_line_loads_nothing_heavy() -> None:
    assert not loaded("import sweeps.cli") & HEAVY
    assert not loaded("import sweeps, sweeps.errors") & HEAVY


def test_help_loads_nothing_heavy() -> None:
    assert not command("--help") & HEAVY


@pytest.mark.thorough
@pytest.mark.parametrize("arguments", [COLLECTIVE, OVERLAP], ids=["collective", "overlap"])
def test_an_answer_without_figures_loads_numpy_alone(arguments: list[str]) -> None:
    assert command(*arguments) & HEAVY == {"numpy"}


def test_formulas_load_numpy_alone() -> None:
    assert loaded("import overhead") & HEAVY == {"numpy"}


@pytest.mark.thorough
@pytest.mark.parametrize("arguments", [COLLECTIVE, ALL], ids=["one", "all"])
def test_a_collective_loads_no_formulas_of_training_steps(arguments: list[str]) -> None:
    assert "overhead.step" not in command(*arguments)


def imported_by(code: str) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yield the imports of ours in some code, those in texts that it hands to Python as well."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in PACKAGES:
            yield node
        if isinstance(node, ast.Import) and node.names[0].name.split(".")[0] in PACKAGES:
            yield node
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            lines = (line for line in node.value.splitlines() if line.startswith("from "))
            for line in lines:
                with suppress(SyntaxError):
                    yield from imported_by(line)


EXAMPLES = [path for path in SOURCES if ">>> " in path.read_text(encoding="utf-8")]
BENCHMARKS = [path for path in modules("tests/benchmarks") if path.name.startswith("test_")]


@pytest.mark.parametrize("path", EXAMPLES, ids=named)
def test_what_examples_in_docstrings_import_is_there(path: Path) -> None:
    lines = re.findall(r"^ *>>> ((?:from|import) .*)$", path.read_text(encoding="utf-8"), re.M)
    for line in lines:
        exec(line.partition("#")[0], {})


@pytest.mark.parametrize("path", BENCHMARKS, ids=named)
def test_benchmarks_find_what_they_import(path: Path) -> None:
    """They run by hand alone, in minutes: what they name is looked for here."""
    found = list(imported_by(path.read_text(encoding="utf-8")))
    assert found
    for node in found:
        exec(ast.unparse(node), {})


@pytest.mark.thorough
def test_benchmarks_can_be_collected_and_run(tmp_path: Path) -> None:
    """One of them runs, once, and prints its ratio."""
    benchmark = "tests/benchmarks/test_tune_speed.py::test_a_tuning"
    options = ["-n0", "-q", "--benchmark-disable", "-p", "no:cacheprovider"]
    # A benchmark takes as long as it takes, also where unmarked tests may not.
    environment = {name: value for name, value in os.environ.items() if name != "TESTS_LIMIT_CPU"}
    process = subprocess.run(
        [sys.executable, "-m", "pytest", *options, benchmark],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stdout
    assert "ratios" in process.stdout
