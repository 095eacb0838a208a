"""``sweeps tune``: flags, what it prints, its sweep, bad input."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from tests.cli_runner import Done, Runner
from tests.tables import examples, keyed

QWEN = "tune --model-name Qwen/Qwen3-0.6B"


@pytest.mark.thorough
def test_with_every_flag_of_the_documentation(cli: Runner) -> None:
    out = cli(
        f"{QWEN} --max-tp-size 4 --max-token-len 4096 --operators fc1 fc2 qkv proj --min-num-sm 2"
        " --max-num-sm 8 --overlap-threshold 0.6 --output-dir mine"
    ).out
    verdict, about = out.splitlines()[:2]
    assert verdict.startswith("on at TP ")
    assert about == "  Qwen/Qwen3-0.6B: predicted for dgx-h100, bf16, 4096 tokens"
    assert out.endswith("wrote mine/\n")
    result = json.loads(Path("mine/tuning_report.json").read_text())
    assert result["overlap_threshold"] == 0.6
    counts = {c["num_sm"] for c in result["cases"] if c["overlap_method"] == "bulk"}
    assert {2, 4, 8} <= counts <= set(range(2, 9))
    assert {c["tp_size"] for c in result["cases"]} == {1, 2, 4}


@pytest.mark.thorough
def test_the_model_alone(cli: Runner, tmp_path: Path) -> None:
    out = cli(QWEN).out
    folder = tmp_path / out.rsplit("wrote ", 1)[1].strip()
    assert folder.parent == tmp_path / "outputs" / "tp_overlap_tuner"
    summary = (folder / "summary.txt").read_text()
    first, *_ = out.splitlines()
    assert summary.startswith(f"{first}, with ")
    reasons = cli(f"{QWEN} --show reasons --output-dir again").out.split("More: ")[1]
    assert summary.partition("\n\n")[2].partition("\n\nAssumed:")[0] in reasons


@pytest.mark.thorough
@pytest.mark.parametrize(
    "operators", ["--operators qkv proj", "--operators qkv,proj", "--operators=qkv,proj"]
)
def test_operators(cli: Runner, operators: str) -> None:
    record = json.loads(cli(f"{QWEN} {operators} --json --output-dir o", fine=False).out)
    assert {c["operator"] for c in record["cases"]} == {"qkv", "proj"}
    assert record["config"]["operators"] == ["qkv", "proj"]


def test_records(cli: Runner) -> None:
    result = cli(f"{QWEN} --csv --output-dir o --search grid", fine=False)
    assert len(result.rows) == 204 + 12
    assert result.rows[0]["config_id"] == "tp2_fc1_fprop_baseline"
    assert "wrote o/" in result.err


@pytest.mark.thorough
def test_one_size(cli: Runner, tmp_path: Path) -> None:
    out = cli("tune --model-name llama3-8b --tp-size 4 --output-dir o").out
    assert out.startswith("on at TP 4: ")
    report = json.loads(Path("o/tuning_report.json").read_text())
    assert {case["tp_size"] for case in report["cases"]} == {1, 4}
    every = cli("tune --model-name llama3-8b --json --output-dir all", fine=False).out
    assert report["best_configs"]["4"] == json.loads(every)["best_configs"]["4"]
    for more, named in (("8 --max-tp-size 8", "--max-tp-size"), ("3", "--tp-size 3:")):
        assert named in cli.refused(f"tune --model-name llama3-8b --tp-size {more}")
    output = cli(f"{QWEN} --tp-size 2 --write-workload w").out
    assert "--tp-size 2" in output
    assert "--max-tp-size" not in output
    words = "torchrun --nproc-per-node 2 w/workload.py FOLDER tp2_fc1_baseline"
    assert words in Path("w/README.md").read_text()


@pytest.mark.thorough
def test_a_workload_is_tuned_as_it_was_asked(cli: Runner) -> None:
    """The command that it prints asks what was asked, and nothing else."""
    asked = (
        "--operators qkv proj --max-num-sm 8 --search grid --tolerance 0.1 --sm-margin "
        "--no-pipeline --te-version 2.3 --latency '2 us'"
    )
    output = cli(f"{QWEN} {asked} --write-workload w").out
    command = shlex.split(output.splitlines()[1])
    position = command.index("--command")
    words = " ".join(command[1:position]).replace("--latency 2 us", "--latency '2 us'")
    plain = cli(f"{QWEN} {asked} --json --output-dir one", fine=False).out
    repeated_output = cli(f"{words} --json --output-dir two", fine=False).out
    assert json.loads(repeated_output) == json.loads(plain)


@pytest.mark.thorough
def test_figures_of_a_tuning(cli: Runner) -> None:
    """The figure says what overlap saves of each linear layer."""
    out = cli(f"{QWEN} --max-tp-size 2 --output-dir o --plot --output mine.nc --verbose").out
    assert "drew mine-saved.png" in out
    assert "  sms = 132  [assumed: " in out
    assert " (dgx-h100)]" in out
    text = Path("mine-saved.svg").read_text()
    assert "Time saved by TP overlap, by linear layer" in text


@pytest.mark.thorough
def test_the_nominal_grid(cli: Runner) -> None:
    result = cli(f"{QWEN} --grid nominal --json --output-dir o", fine=False)
    record = json.loads(result.out)
    grid = [c for c in record["cases"] if c["tp_size"] > 1 and not c["refined"]]
    assert len(grid) == 288
    illegal = [c for c in grid if c["status"] == "illegal"]
    assert len(illegal) == 144
    assert all(c["reason"] and c["operator_e2e_time_us"] is None for c in illegal)


@pytest.mark.thorough
def test_a_config_json(cli: Runner, tmp_path: Path) -> None:
    content = keyed(
        "model_type=qwen3 hidden_size=1024 intermediate_size=3072 vocab_size=151936 "
        "num_attention_heads=16 num_key_value_heads=8 head_dim=128 num_hidden_layers=28 "
        "tie_word_embeddings=True hidden_act=silu attention_bias=False use_sliding_window=False"
    )
    (tmp_path / "config.json").write_text(json.dumps(content))
    record = json.loads(
        cli("tune --model-name ./config.json --json --output-dir a", fine=False).out
    )
    two = json.loads(cli(f"{QWEN} --json --output-dir b", fine=False).out)
    assert record["cases"] == two["cases"]


@pytest.mark.thorough
def test_figures_of_one_s_own(cli: Runner) -> None:
    line = f"{QWEN} --json --bandwidth 100GB/s --launch-time 0s --latency 0"
    slow = cli(f"{line} --output-dir a", fine=False)
    assert "--launch-time" in slow.err
    result = cli(f"{QWEN} --json --bandwidth 100GB/s --launch-time 1us --output-dir a", fine=False)
    record = json.loads(result.out)
    assert record["rates"]["bandwidth"] == {"value": 1e11, "kind": "given"}
    assert record["rates"]["launch_time"]["value"] == 1e-6


# Bad input: a line each, exit code 2.


@pytest.mark.parametrize(("line", "fields"), examples(__file__, "bad_input", QWEN=QWEN))
def test_bad_input(cli: Runner, line: str, fields: list[str], tmp_path: Path) -> None:
    result = cli(line, fine=False)
    assert result.code == 2
    lines = result.err.splitlines()
    said = [text.removeprefix("sweeps: ") for text in lines]
    assert len(said) == len(fields)
    assert all(text.startswith(name) for text, name in zip(said, fields, strict=True))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.thorough
def test_an_output_that_is_there(cli: Runner) -> None:
    cli(f"{QWEN} --output-dir o")
    assert "holds results already" in cli.refused(f"{QWEN} --output-dir o")
    cli(f"{QWEN} --output-dir o --overwrite")


@pytest.mark.thorough
def test_a_folder_that_can_t_be_written(cli: Runner, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = cli(f"{QWEN} --output-dir file/o", fine=False)
    assert result.code in (1, 2)
    assert result.err.count("\n") == 1


# Models that lack something.


@pytest.mark.thorough
def test_layers_that_a_model_lacks_are_named(cli: Runner) -> None:
    latent = cli("tune --model-name deepseek-ai/DeepSeek-V3 --output-dir a").out
    assert "qkv is left out" in latent
    routed = cli("tune --model-name Qwen/Qwen3-30B-A3B --output-dir b").out
    assert "fc1 is left out" in routed
    assert "TP=8 is left out: kv_heads 4 can't be split over 8 ranks" in routed


# Validation.


def validated(cli: Runner, text: str, more: str = "") -> Done:
    Path("cfg.yaml").write_text(text)
    return cli(f"tune --validate cfg.yaml {more}", fine=False)


def test_validate(cli: Runner) -> None:
    good = validated(cli, "fc1_fprop:\n  method: ring_exchange\n")
    assert (good.code, good.err) == (0, "")
    assert good.out.endswith("cfg.yaml: 0 errors, 0 warnings, 2 notes\n")
    bad = validated(cli, "fc1_fprop:\n  metod: ring_exchange\nfc2_fprop:\n")
    assert bad.code == 2
    assert bad.out.startswith("cfg.yaml:2: error (schema): fc1_fprop.metod: no such key")
    assert "cfg.yaml:3: error (schema): fc2_fprop = None" in bad.out


def test_validate_for_a_training(cli: Runner) -> None:
    text = "fc2_fprop:\n  method: pipeline\n  num_splits: 3\n"
    plain = validated(cli, text)
    assert plain.code == 0
    shaped = validated(cli, text, "--model-name Qwen/Qwen3-0.6B --tp-size 2 --flags '--x'")
    assert shaped.code == 2
    assert "1024 outputs" in shaped.out
    assert "--sequence-parallel is missing" in shaped.out
    records = json.loads(validated(cli, text, "--json --flags=").out)
    assert {"level", "severity", "text", "line"} == set(records[0])


@pytest.mark.parametrize(
    "more", ["--tp-size x", "--model-name no/no", '--flags "\'"', "--precision q"]
)
def test_validate_with_bad_input(cli: Runner, more: str) -> None:
    result = validated(cli, "{}\n", more)
    assert result.code == 2
    assert result.err.startswith("sweeps: ")


@pytest.mark.parametrize(("line", "named"), examples(__file__, "idle_options", QWEN=QWEN))
def test_options_that_would_do_nothing_are_refused(
    cli: Runner, line: str, named: list[str], tmp_path: Path
) -> None:
    Path("own.yaml").write_text("qkv_fprop: {method: ring_exchange}\n")
    result = cli(line, fine=False)
    assert result.code == 2
    output = result.err.splitlines()
    assert len(output) == len(named)
    for name in named:
        assert any(line.startswith(f"sweeps: {name}") for line in output), (name, output)
    assert [path.name for path in tmp_path.iterdir()] == ["own.yaml"]


def test_findings_as_records(cli: Runner) -> None:
    text = "foo: {}\nqkv_fprop: {method: ring}\n"
    records = json.loads(validated(cli, text, "--json").out)
    rows = validated(cli, text, "--csv").rows
    assert [row["text"] for row in rows] == [record["text"] for record in records]
    assert {row["severity"] for row in rows} == {"error", "note"}


@pytest.mark.thorough
def test_its_own_configuration_is_valid(cli: Runner) -> None:
    cli("tune --model-name llama3-70b --output-dir o")
    for size in (2, 4, 8):
        line = f"tune --validate o/optimal_tp_comm_overlap_cfg_tp{size}.yaml --tp-size {size}"
        assert "0 errors, 0 warnings" in cli(line).out
