"""What commands print is in the words of the field: the glossary's banned phrases, and headings.

`tests/test_words.py` holds them over what is declared; texts that are put together are seen here.
"""

from __future__ import annotations

import re

import pytest

from tests.cli_runner import Runner
from tests.test_screens import ANSWERS, COMMANDS
from tests.test_words import BANNED

# The shipped title of a notebook's study says what it compares with; a dry run counts the cells of
# a grid, as files do.
ALLOWED = {"hops": {"what clause", "genitive"}, "run": {"cell"}}
LINES = tuple(
    dict.fromkeys(
        (
            *COMMANDS,
            *ANSWERS,
            "list",
            "list --op all_reduce",
            "show all_reduce",
            "catalog",
            "catalog llama3-70b",
            "normal mfu",
            "analysis --params 70e9 --gpus 64 --dp 64",
        )
    )
)


@pytest.mark.thorough_cases("run ", "hops", "buy", "tune", "plan", "analysis", "normal", every=2)
@pytest.mark.parametrize("line", LINES)
def test_screens_have_no_banned_phrase(cli: Runner, line: str) -> None:
    allowed = ALLOWED.get(line.split(maxsplit=1)[0], set())
    for text in cli(line, fine=False).out.splitlines():
        for name, pattern in BANNED.items():
            if name not in allowed:
                assert not re.search(pattern, text), (name, re.search(pattern, text), text)


@pytest.mark.parametrize("machine", ["mi300x", "tpu-v5p"])
def test_other_makers_machines_have_no_software_of_nvidia(cli: Runner, machine: str) -> None:
    line = "--model llama3-8b --gpus 64 --global-batch-size 64 --seq-len 2k --show memory"
    ours = re.compile(r"\b(cuda|cublas|nccl)\b", re.IGNORECASE)
    out = cli(f"analysis {line} --tp 8 --hardware {machine}").out
    assert not ours.search(out), ours.search(out)
    assert len(set(ours.findall(cli(f"analysis {line} --tp 8 --hardware dgx-h100").out))) > 2
