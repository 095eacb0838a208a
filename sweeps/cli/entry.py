"""The command's entry, installed as a module of its own: ``overhead_sweeps``.

Another distribution has a package ``sweeps``, too. Installed over this one it replaces its
``__init__``, so what tells of it can't stand in ``sweeps`` itself.
"""

import importlib.util
import sys
from pathlib import Path


def main() -> None:
    """Run the command, or say in one line why the package ``sweeps`` is another's."""
    spec = importlib.util.find_spec("sweeps")
    folder = Path(spec.origin).parent if spec and spec.origin else None
    if folder is None or not (folder / "cli").is_dir() or (folder / "config").is_dir():
        where = f" ({folder})" if folder else ""
        sys.exit(
            f"Error: the package sweeps of this environment{where} isn't the one of"
            " overhead-sweeps: pip uninstall sweeps overhead-sweeps,"
            " then install overhead-sweeps again, without the other"
        )
    from sweeps.cli import main as command

    command()
