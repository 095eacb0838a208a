"""What people ask, with the commands that answer it: as Markdown and as notebooks."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field, replace
from io import BytesIO, StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sweeps.errors import RunError
from sweeps.result import LINE
from sweeps.spec.files import read_toml, shipped

SCREEN = 18  # lines


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
    with TemporaryDirectory() as folder, contextlib.chdir(folder), terminal():
        for name, text in job.files.items():
            Path(name).write_text(text, encoding="utf-8")
        for line in command_lines(job.command):
            last = line == command_lines(job.command)[-1]
            code, printed = printed_by(shlex.split(line)[1:], run, draw=draw and last)
            if code:
                message = f"{line}: ends with exit code {code}"
                raise RunError(message)
            shown += [f"$ {line}", *first_screen(printed, job.lines), ""]
        if job.python:
            with redirect_stdout(StringIO()) as said:
                exec(job.python, {})
            shown = first_screen(said.getvalue(), job.lines)
            if job.figure:
                from matplotlib import pyplot

                if draw:
                    pyplot.savefig(job.figure, dpi=150, bbox_inches="tight")
                pyplot.close("all")
        if draw:
            picture = _small(Path(job.figure))
    return replace(job, screen="\n".join(shown).rstrip(), picture=picture)


@contextlib.contextmanager
def terminal() -> Iterator[None]:
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


def printed_by(
    words: list[str], run: Callable[[Sequence[str]], int], *, draw: bool
) -> tuple[int, str]:
    """Return a command's exit code, and what it prints."""
    if draw and words[0] != "run":
        words = [*words, "--plot"]
    if "--formulas" in words:
        # What a user's file declares would stay in this process' registry.
        path = str(Path(__file__).parents[2])
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


def command_lines(text: str) -> list[str]:
    """Return the command lines of a job."""
    return text.strip().splitlines()


def first_screen(text: str, most: int) -> list[str]:
    """Return the first screen: what stands before the files written and the values taken."""
    lines = [line.rstrip() for line in text.strip().splitlines()[:most]]
    ends = (index for index, line in enumerate(lines) if line.startswith(("wrote ", "not given,")))
    return lines[: next(ends, most)]


def asked(job: Job) -> str:
    """Return what is typed, with what is printed where that is known."""
    typed = job.python.strip() or "\n".join(f"$ {line}" for line in command_lines(job.command))
    return typed if job.python or not job.screen else job.screen


def guide(jobs: Sequence[Job]) -> str:
    """Return the jobs as Markdown."""
    made = "Generated by `sweeps docs --jobs` from `specs/jobs/jobs.toml`; a test runs each."
    parts = ["# What people ask, and the commands that answer it", made]
    return "\n\n".join([*parts, *(section(index, job) for index, job in enumerate(jobs, 1))]) + "\n"


def section(place: int, job: Job) -> str:
    """Return one job as Markdown."""
    parts = [f"## {place}. {job.title}", job.question]
    for name, text in job.files.items():
        kind = Path(name).suffix.removeprefix(".").replace("py", "python")
        parts += [f"`{name}`:", f"```{kind}\n{text.strip()}\n```"]
    parts.append(f"```{'python' if job.python else ''}\n{asked(job)}\n```")
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
    for line, screen in zip(command_lines(job.command), screens, strict=True):
        last = line == command_lines(job.command)[-1]
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
