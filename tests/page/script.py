"""Runs a page's script outside of a browser, where node is at hand."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from sweeps.pages.write import Page, data_of, script

NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="node isn't installed")
# What a page's script finds where there is no page: its data and values come as files.
OPENED = """
const fs = require("fs");
const data = JSON.parse(fs.readFileSync(process.argv[2], "utf8"));
const bytes = new Uint8Array(fs.readFileSync(process.argv[3])).buffer;
setScales(data.scales);
const asked = JSON.parse(fs.readFileSync(process.argv[4], "utf8"));
"""


def run_script(folder: Path, page: Page, code: str, asked: Any = None) -> Any:
    """Return what JavaScript, run with a page's functions, `data` and `bytes`, writes as JSON."""
    assert NODE is not None
    files = {
        "data.json": data_of(page).encode(),
        "values.bin": page.values,
        "asked.json": json.dumps(asked).encode(),
        "run.cjs": script(page.kind, OPENED + code).encode(),
    }
    for name, content in files.items():
        (folder / name).write_bytes(content)
    paths = [str(folder / name) for name in ("run.cjs", "data.json", "values.bin", "asked.json")]
    ran = subprocess.run([NODE, *paths], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    return json.loads(ran.stdout)
