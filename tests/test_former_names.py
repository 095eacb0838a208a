"""Names follow the glossary; former ones are read for one release, with a line that says so."""

from __future__ import annotations

import re
from pathlib import Path

import netCDF4
import pytest

import sweeps
from overhead.labels import LABELS
from overhead.quantity import VOCABULARY
from sweeps.former import FORMER, renamed
from sweeps.spec.sweep import load_sweep
from sweeps.store.netcdf import open_dataset
from sweeps.validate.run_table import read_runs
from tests.cli_runner import Runner
from tests.tables import examples, keyed

# Parts of names that read as something else, and what stands in their place.
BANNED = examples(__file__, "banned")
# Those of the groups of a kind, which is called ends: a pipeline's first and last ranks.
KEPT = {"ends_groups", "ends_ranks"}


SPEC = examples(__file__, "spec")


@pytest.mark.parametrize("pattern", BANNED)
def test_no_name_has_a_part_that_misleads(pattern: str) -> None:
    wrong = {n for n in (*VOCABULARY, *LABELS) if re.search(pattern, n)} - KEPT
    assert not wrong, BANNED[pattern]


def test_every_former_name_has_a_name_and_none_is_one() -> None:
    assert not set(FORMER) & {*VOCABULARY, *LABELS}
    assert {*FORMER.values()} <= {*VOCABULARY, *LABELS}


def test_a_spec_with_a_former_name_is_read_and_told(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(SPEC, encoding="utf-8")
    with pytest.warns(FutureWarning, match=r"mine\.toml: .* wire_time is serialization_time$"):
        sweep, _ = load_sweep(path)
    assert sweep.quantities == ("serialization_time",)
    assert sweep.title == "wire_time is prose here"


def test_a_stored_file_with_a_former_name_is_read_and_told(tmp_path: Path, cli: Runner) -> None:
    spec, path = tmp_path / "now.toml", tmp_path / "old.nc"
    spec.write_text(SPEC.replace("wire_time", "serialization_time"), encoding="utf-8")
    stored = sweeps.run(spec)
    assert cli(f"run {spec} --output {path} --no-plot", fine=False).code == 0
    with netCDF4.Dataset(path, "a") as raw:
        raw.renameVariable("serialization_time", "wire_time")
    with pytest.warns(FutureWarning, match=r"old\.nc: .* wire_time is serialization_time$"):
        opened = open_dataset(path)
    with opened:
        assert opened["serialization_time"].equals(stored["serialization_time"])


def test_an_option_by_its_former_name_gives_the_same(cli: Runner) -> None:
    question = "analysis --model llama3-8b --gpus 64 --tp 2 --pp 2 --global-batch 64 --json"
    (now,) = cli(f"{question} --num-micro-batches 4 --micro-batch-size 1").records
    (then,) = cli(f"{question} --micro-batches 4 --micro-batch 1").records
    assert now["step_time_s"] == then["step_time_s"]


def test_prose_and_unknown_keys_stay_as_they_are() -> None:
    content = {"title": "host_time", "x": {"window": 1}, "rows": ["a host_time b", 2]}
    with pytest.warns(FutureWarning, match="window is sliding_window, host_time is host_launch_ti"):
        changed = renamed(content, "file")
    assert changed["title"] == "host_time"
    assert changed["x"] == {"sliding_window": 1}
    assert changed["rows"] == ["a host_launch_time b", 2]


def test_python_may_ask_by_a_former_name() -> None:
    asked = keyed(
        "ranks=8 message_bytes=1e6 bandwidth=5e10 latency=2e-6 topology=ring algorithm=ring"
    )
    now = sweeps.sweep(["serialization_time", "time"], **asked)
    with pytest.warns(FutureWarning, match="wire_time is serialization_time"):
        then = sweeps.sweep(["wire_time", "time"], **asked)
    assert now.equals(then)


@pytest.mark.parametrize(
    "line",
    [
        "collective --N 8 --M 1MiB --assert 'wire_time < 1 s'",
        "analysis --model llama3-8b --gpus 8 --sensitivity wire_time",
        "show wire_time",
        "collective --N 8 --M 1MiB --topology ring --formulas own.py",
    ],
)
def test_who_asks_by_a_former_name_is_told_the_name(cli: Runner, line: str) -> None:
    Path("own.py").write_text(
        "from overhead.formula import formula\n"
        "@formula(source='derivation', returns='time', name='own', when={'topology': 'ring'})\n"
        "def own(latency, wire_time):\n"
        '    """Own."""\n'
        "    return latency + wire_time\n",
        encoding="utf-8",
    )
    assert "called 'serialization_time' now" in cli.refused(line)


def test_a_table_of_runs_with_former_headings_is_read_and_told(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    head = "gpu_type,gpus,seq_len,model,tp,pp,dp,global_batch,micro_batch,precision,step_time_s\n"
    path.write_text(
        head + "h100,8,8192,llama3-8b,1,1,8,64,1,bf16,5.0 (assumed)\n", encoding="utf-8"
    )
    with pytest.warns(FutureWarning, match=r"runs\.csv: .* micro_batch is micro_batch_size$"):
        (run,) = read_runs(path).runs
    assert run.numbers["micro_batch_size"] == 1.0
    assert run.numbers["global_batch_size"] == 64.0
