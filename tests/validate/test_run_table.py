"""Tables of measured runs: what is read, and what is refused with which words."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweeps.errors import MOST_FAULTS, InputError
from sweeps.validate.run_table import TABLES, find_runs, read_runs

HEADINGS = "row_id,model,gpu_type,gpus,tp,step_time_s"
GOOD = "r1,llama3-70b,dgx-h100,8,8,1.5"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "own.csv"


def faults_of(path: Path, text: str | bytes) -> tuple[str, ...]:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError) as caught:
        read_runs(path)
    return caught.value.faults


def test_a_row_as_it_stands(path: Path) -> None:
    path.write_text(
        f"# a remark\n\n{HEADINGS},vocab,kv_heads,logit_bytes\n{GOOD},51200 (assumed),MLA,4\n"
    )
    (run,) = read_runs(path).runs
    assert run.line == 4
    assert (run.name, run.source) == ("r1", "not stated")
    assert run.numbers == {"gpus": 8, "tp": 8, "step_time_s": 1.5, "vocab": 51200, "logit_bytes": 4}
    assert run.remarks == {"vocab": "assumed"}
    assert run.texts["kv_heads"] == "MLA"


def test_what_isn_t_said_isn_t_there(path: Path) -> None:
    path.write_text(f"{HEADINGS},pp,notes\n{GOOD},,\n")
    (run,) = read_runs(path).runs
    assert "pp" not in run.numbers
    assert run.texts["notes"] == ""


def test_cells_that_say_nothing(path: Path) -> None:
    path.write_text(f"{HEADINGS},heads,pp,sp\n{GOOD},64 or 96 (not stated),unknown,unknown\n")
    (run,) = read_runs(path).runs
    assert not {"heads", "pp"} & set(run.numbers)
    assert run.texts["sp"] == ""


def test_a_table_of_recipes_is_one_of_runs(path: Path) -> None:
    """A row of NVIDIA's recipes, as a collection of them has it, and a plan that wasn't run."""
    headings = (
        "row_id,kind,model,task,release,hardware,gpus,precision,sequence_length,global_batch_size,"
        "micro_batch_size,tp,pp,vp,cp,dp,ep,sequence_parallel,zero,recompute,dispatcher,"
        "embedding_layer_weight,cuda_graph_impl,cuda_graph_scope,step_time_s,recipe_source"
    )
    plan = "qwen3_30b_a3b,pretrain,26.02,GB200-NVL72,8,fp8_mx,4096,512,4,1,1,1,1,8,8,no,"
    plan += "distributed optimizer (ZeRO-1),none,flex,yes"
    path.write_text(
        f"{headings}\nE1,measured,{plan},transformer_engine,moe_router;moe_preprocess,11.0,a.py:1\n"
        f"E2,plan,{plan},local,full_iteration,,a.py:1\n"
    )
    first, second = read_runs(path).runs
    texts = first.texts
    assert (texts["kind"], second.texts["kind"]) == ("", "plan")
    assert (first.source, texts["gpu_type"], texts["sp"]) == ("mbridge_26.02", "GB200-NVL72", "no")
    assert (texts["precision"], texts["dispatcher"]) == ("mxfp8", "deduplicated")
    assert texts["cuda_graphs"] == "moe_router+moe_preprocess"
    assert second.texts["cuda_graphs"] == "whole iteration"
    expected = {"seq_len": 4096, "vpp": 1, "gpus_per_node": 4, "embedding_layer_weight": 1}
    assert {name: first.numbers[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("text", "actual_text"),
    [
        ("", "is empty"),
        (HEADINGS + "\n", "has no rows"),
        (b"\xff\xfe\x00", "not UTF-8 text (byte 0)"),
        (f"{HEADINGS},tpp\n{GOOD},1\n", "heading = 'tpp': no such column; did you mean 'tp'"),
        (f"{HEADINGS},tp\n{GOOD},1\n", "heading = 'tp': is given twice"),
        ("model,tp,step_time_s\nx,1,1\n", "heading = 'gpu_type': is missing"),
        ("model,gpu_type,tp\nx,y,1\n", "nothing that was measured; one of step_time_s"),
        ("model,gpu_type,step_time\nx,y,1\n", "did you mean 'step_time_s'"),
        ("model,gpu_type,value\nx,y,1\n", "needs a column 'quantity'"),
        (f"{HEADINGS}\nr1,llama3-70b,dgx-h100,8,8\n", "line 2: 5 cells; the headings are 6"),
        (f"{HEADINGS}\nr1,m,g,8,eight,1\n", "line 2, tp = 'eight': can't be read; a number"),
        (f"{HEADINGS}\nr1,m,g,8,1.5,1\n", "line 2, tp = '1.5': out of range; must be a whole"),
        (f"{HEADINGS}\nr1,m,g,8,0,1\n", "line 2, tp = '0': out of range"),
        (f"{HEADINGS}\nr1,m,g,8,8,-1\n", "step_time_s = '-1': out of range; must be above 0"),
        (f"{HEADINGS}\nr1,m,g,8,8,1e999\n", "step_time_s = '1e999': can't be read"),
        (f"{HEADINGS},kv_heads\n{GOOD},MQA\n", "'MQA': can't be read; a number, or MLA"),
    ],
)
def test_faults(path: Path, text: str | bytes, actual_text: str) -> None:
    faults = faults_of(path, text)
    assert len(faults) == 1
    assert actual_text in faults[0]
    assert "\n" not in faults[0]


def test_all_faults_at_once_but_not_endlessly(path: Path) -> None:
    faults = faults_of(path, f"{HEADINGS}\nr1,m,g,x,y,1\nr2,m,g,8,8,0\n")
    assert len(faults) == 3
    assert "line 3" in faults[2]
    faults = faults_of(path, HEADINGS + "\n" + "r1,m,g,8,8,x\n" * 1000)
    assert len(faults) == MOST_FAULTS + 1
    assert faults[-1].endswith(f"{1000 - MOST_FAULTS} more faults")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("trainig", "did you mean 'training'"),
        ("no/such.csv", "no such file"),
        ("", "no such table"),
        ("pyproject.toml", "isn't a CSV file by its name"),
    ],
)
def test_names_that_aren_t(name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])
    with pytest.raises(InputError, match=text):
        find_runs(name)


def test_a_folder_isn_t_a_table(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="directory"):
        read_runs(tmp_path)


@pytest.mark.parametrize("name", TABLES)
def test_shipped_tables_have_their_sources(name: str) -> None:
    table = read_runs(find_runs(name))
    names = [run.name for run in table.runs]
    assert len(set(names)) == len(names) > 50
    assert all(run.texts["source_id"] and run.texts["source_ref"] for run in table.runs)
    text = table.path.read_text(encoding="utf-8")
    assert "/home/" not in text
    assert ".." + "/" not in text
    assert table.path.stat().st_size < 500_000
