"""Write the jobs and tours as notebooks: ``python -m tests.maintenance.notebooks``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sweeps.site.jobs import Job, read_jobs
from tests.maintenance.cells import run_cells

FOLDER = Path(__file__).parents[2] / "outputs" / "notebooks"


def main() -> None:
    """Run every job and tour, and write what its cells show."""
    for index, job in enumerate((*read_jobs(), *read_jobs("tours")), 1):
        shown = run_cells([cell.strip() for cell in job.cells], job.files)
        text = notebook(index, job, shown)
        (FOLDER / f"{index}-{job.name}.ipynb").write_text(text, encoding="utf-8", newline="\n")


def notebook(place: int, job: Job, shown: Sequence[Sequence[Mapping[str, object]]] = ()) -> str:
    """Return one job as a Jupyter notebook, with what each of its cells shows."""
    cells: list[dict[str, Any]] = []

    def add(kind: str, text: str, outputs: Sequence[Mapping[str, object]] = ()) -> None:
        settings = {"execution_count": None, "outputs": [*outputs]} if kind == "code" else {}
        source = text.splitlines(keepends=True)
        about = {"cell_type": kind, "id": f"cell-{len(cells) + 1}", "metadata": {}}
        cells.append({**about, "source": source, **settings})

    add("markdown", f"# {place}. {job.title}\n\n{job.question}")
    for name, text in job.files.items():
        said = {"name": "stdout", "output_type": "stream", "text": [f"Writing {name}\n"]}
        add("code", f"%%writefile {name}\n{text.strip()}", [said])
    for number, cell in enumerate(job.cells):
        add("code", cell.strip(), shown[number] if shown else ())
    add("markdown", job.look)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    whole = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    main()
