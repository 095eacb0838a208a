"""Functions for notebooks: a command each, by the same road, with an answer to look at."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import sweeps
from sweeps.cli import COMMANDS
from sweeps.errors import InputError
from sweeps.site.jobs import read_jobs
from tests.cli_runner import Runner
from tests.tables import examples

OF_COMMANDS = ("collective", "plan", "buy", "analysis", "hops", "overlap", "tune", "calibrate",
               "normal", "trace", "page", "catalog")  # fmt: skip
STEP = {"model": "llama3-8b", "gpus": 8, "global_batch_size": 8, "seq_len": 8192}
CASES: list[tuple[str, tuple[str, ...], Mapping[str, Any], str]] = [
    ("collective", (), {"gpus": 16, "message_size": 2**30}, "--gpus 16 --message-size 1GiB"),
    (
        "collective",
        (),
        {"N": np.array([8, 16]), "M": 1e6, "topology": ["ring", "torus"]},
        "--N 8,16 --M 1e6 --topology ring,torus",
    ),
    ("analysis", (), {**STEP, "tp": 2}, "--model llama3-8b --gpus 8 --tp 2 --global-batch-size 8 "
     "--seq-len 8192"),
    ("analysis", (), {**STEP, "tp": (1, 2), "sp": True}, "--model llama3-8b --gpus 8 --tp 1,2 "
     "--sp on --global-batch-size 8 --seq-len 8192"),
    ("hops", (), {}, ""),
    ("overlap", (), {"compute": "50ms", "comm": "10ms", "efficiency": 0.8},
     "--compute 50ms --comm 10ms --efficiency 0.8"),
    ("normal", ("all_reduce",), {"gpus": 8, "message_size": "1MiB,1GiB"},
     "all_reduce --gpus 8 --message-size 1MiB,1GiB"),
    ("plan", (), {**STEP, "global_batch_size": 64, "tp": [1, 2], "cp": 1},
     "--model llama3-8b --gpus 8 --tp 1,2 --cp 1 --global-batch-size 64 --seq-len 8192"),
]  # fmt: skip


@pytest.mark.thorough_cases("plan", "analysis", "hops", "normal", "collective0")
@pytest.mark.parametrize(
    ("name", "arguments", "options", "line"), CASES, ids=[case[0] for case in CASES]
)
def test_a_function_is_its_command(
    cli: Runner, name: str, arguments: tuple[str, ...], options: Mapping[str, Any], line: str
) -> None:
    actual = getattr(sweeps, name)(*arguments, **options)
    records = cli(f"{name} {line} --json").records
    assert isinstance(records, list)
    table = actual.dataframe
    assert [*table] == [key for key in records[0] if key != "schema_version"]
    for key in table:
        wanted = [record[key] for record in records]
        if isinstance(wanted[0], str):
            assert table[key].tolist() == wanted
        else:  # the same bits; null is what doesn't exist
            np.testing.assert_array_equal(table[key].astype(float), np.array(wanted, dtype=float))
    screen = cli(f"{name} {line}").out
    assert str(actual) in screen
    assert screen.startswith(str(actual)[:60])
    shown = repr(actual).splitlines()
    assert len(shown) <= 20
    assert shown[0] == screen.splitlines()[0]
    assert screen.splitlines()[0][:40] in actual._repr_html_().replace("&#x27;", "'")
    assert isinstance(actual.dataset, xr.Dataset)
    assert actual.dataset.attrs["history"].endswith(actual.command)
    assert actual.explain()


@pytest.mark.thorough
def test_files_are_arguments(cli: Runner, tmp_path: Path) -> None:
    files = {name: text for job in read_jobs() for name, text in job.files.items()}
    for name in ("night.csv", "rank0.json"):
        (tmp_path / name).write_text(files[name])
    log, rows = tmp_path / "night.csv", tmp_path / "rank0.json"
    judged = sweeps.calibrate(log, hardware="dgx-h100")
    assert str(judged) in cli(f"calibrate {log} --hardware dgx-h100").out
    assert {"fit", "rows", "sources"} == {*judged.sections}
    assert len(judged.dataframe) == len(cli(f"calibrate {log} --hardware dgx-h100 --csv").rows)
    told = sweeps.trace(rows, mode="hta")
    assert str(told) in cli(f"trace {rows} --mode hta").out
    assert told.plot("timeline").names == ("timeline",)
    with pytest.raises(InputError, match=r"^--figure = 'time': is unknown"):
        told.plot("time")


@pytest.mark.thorough
def test_what_to_buy_and_how_to_tune(cli: Runner, tmp_path: Path) -> None:
    asked = {"model": "llama3-8b", "tokens": 1e12, "days": 30, "b": 384}
    price = {"dgx-h100": 2.5, "dgx-b200": 4}
    answer = sweeps.buy(**asked, hardware=[*price], price=price)
    line = "buy --model llama3-8b --tokens 1e12 --days 30 -b 384 --hardware dgx-h100,dgx-b200"
    printed = cli(f"{line} --price dgx-h100=2.5,dgx-b200=4").out
    assert str(answer).splitlines()[:8] == printed.splitlines()[:8]
    tuned = sweeps.tune(model_name="Qwen/Qwen3-32B", max_tp_size=2, output_dir=tmp_path / "tuned")
    assert (tmp_path / "tuned").is_dir()
    assert repr(tuned).startswith(("on at TP 2: ", "off"))


@pytest.mark.parametrize(
    ("name", "options", "line"),
    examples(__file__, "refusals"),
)
def test_a_refusal_is_the_command_line_s(
    cli: Runner, name: str, options: Mapping[str, Any], line: str
) -> None:
    arguments = ("llama3-8b",) if name == "catalog" else ()
    with pytest.raises(InputError) as caught:
        getattr(sweeps, name)(*arguments, **options)
    result = cli(line, fine=False)
    assert result.code == 2
    assert [f"sweeps: {text}" for text in caught.value.faults] == result.err.splitlines()


def test_what_is_of_a_screen_is_a_method() -> None:
    for name in ("csv", "json", "verbose", "show", "plot"):
        with pytest.raises(InputError, match=rf"^{name} = .*: is of the command line; "):
            sweeps.collective(gpus=8, message_size=1e6, **{name: True})


def test_sections_are_explained() -> None:
    cost = sweeps.collective(gpus=16, message_size="1GiB")
    assert cost.sections == ("formulas", "defaults")
    assert repr(cost.explain("formulas")).startswith("hierarchical.all_reduce.nvls_tree: ")
    assert str(cost.explain("defaults")) in cost.explain()
    with pytest.raises(InputError, match="explain = 'parts': no such section; known: "):
        cost.explain("parts")


def test_an_option_that_is_given_alone_is_true() -> None:
    cost = sweeps.collective(gpus=8, message_size=1e9, topology="ring", sensitivity=True)
    assert cost.command.endswith("--sensitivity")
    assert cost.dataset.constant.size > 1
    assert sweeps.collective(gpus=8, message_size=1e9, sensitivity=None).dataset.time.size == 1


def test_the_catalogue_is_a_table() -> None:
    table = sweeps.catalog().dataframe
    assert {"machines", "models", "frameworks", "presets", "libraries"} == {*table.kind}
    assert "dgx-h100" in table.name[table.kind == "machines"].tolist()
    answer = sweeps.catalog("dgx-h100")
    assert repr(answer).startswith("dgx-h100  NVIDIA DGX H100")
    with pytest.raises(InputError, match="is answered in words alone"):
        _ = answer.dataset


def test_a_function_keeps_its_name_beside_the_modules_that_compute() -> None:
    import sweeps.calibration.report
    import sweeps.hop_study.study
    import sweeps.pages.write

    for name in ("calibrate", "hops", "overlap", "page"):
        assert getattr(sweeps, name).__module__ == "sweeps.functions"
    assert sweeps.page.__doc__
    assert {*OF_COMMANDS, "run", "plot"} <= {*sweeps.__all__} & {*COMMANDS}


def test_a_signature_names_the_usual_options() -> None:
    """A notebook completes them."""
    named = {name: [*inspect.signature(getattr(sweeps, name)).parameters] for name in OF_COMMANDS}
    assert {"model", "gpus", "tp", "explain", "objective"} <= {*named["plan"]}
    assert {"gpus", "message_size", "topology"} <= {*named["collective"]}
    assert named["trace"][:2] == ["files", "mode"]
    assert all(names[-1] == "options" and len(names) < 110 for names in named.values())


@pytest.mark.thorough
def test_figures_are_shown_and_saved(tmp_path: Path) -> None:
    figures = sweeps.collective(gpus=[8, 64], message_size="1KiB:1GiB:x32").plot()
    assert len(figures) == len([*figures]) >= 1
    assert repr(figures).startswith("Figures (png, svg): ")
    assert bool(figures._repr_png_()) is (len(figures) == 1)
    paths = figures.save(tmp_path / "new")
    assert sorted(tmp_path.glob("new/*")) == sorted(paths)
    with pytest.raises(InputError, match="overwrite=True"):
        figures.save(tmp_path / "new")
    with pytest.raises(InputError, match=r"^--style = 'nice': unknown"):
        sweeps.plot(sweeps.sweep("time", ranks=[8, 64], message_bytes=1e6), style="nice")


@pytest.mark.thorough
def test_a_page_is_shown(tmp_path: Path) -> None:
    path = tmp_path / "plan.html"
    made = sweeps.page(**STEP, tp=2, output=path)
    assert made.path == path
    assert made._repr_html_().startswith("<iframe srcdoc=")
    with pytest.raises(InputError, match="exists"):
        sweeps.page(**STEP, tp=2, output=path)
