"""The command's entry says when another distribution's package ``sweeps`` stands in its place."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).parents[1]
ENTRY = TOP / "sweeps" / "cli" / "entry.py"


def run(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the entry as an installed script does: its file alone, with one folder to import from."""
    code = f"import sys; sys.path.insert(0, {str(folder)!r}); import runpy;" + (
        f"sys.argv = ['sweeps', '--version']; runpy.run_path({str(ENTRY)!r})['main']()"
    )
    command = [sys.executable, "-P", "-c", code]
    return subprocess.run(
        command, check=False, capture_output=True, text=True, cwd=folder, env={"HOME": str(folder)}
    )


def test_the_entry_runs_the_command() -> None:
    ran = run(TOP)
    assert ran.returncode == 0
    assert ran.stdout.startswith("sweeps, version")


@pytest.mark.parametrize("ours", [True, False])
def test_another_package_of_that_name_is_one_line(tmp_path: Path, ours: bool) -> None:
    # As the other distribution's wheel: its __init__ imports what isn't installed here.
    (tmp_path / "sweeps" / "config").mkdir(parents=True)
    (tmp_path / "sweeps" / "__init__.py").write_text("import jsonschema_of_another\n")
    if ours:  # installed over this one, whose folders stay
        (tmp_path / "sweeps" / "cli").mkdir()
    ran = run(tmp_path)
    assert ran.returncode == 1
    assert ran.stderr == (
        f"Error: the package sweeps of this environment ({tmp_path / 'sweeps'}) isn't the one of"
        " overhead-sweeps: pip uninstall sweeps overhead-sweeps,"
        " then install overhead-sweeps again, without the other\n"
    )
