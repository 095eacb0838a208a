"""The Python interface and the files of a tuning."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from sweeps.errors import InputError
from sweeps.tuner.report import TuningReport
from sweeps.tuner.settings import TPOverlapTunerConfig, case_companion, layer_values
from sweeps.tuner.tuner import TPOverlapTuner
from sweeps.tuner.userbuffers import KEYS, OPERATORS, LayerOverlap, grid_cases
from sweeps.tuner.validate import Setting, validate_file

STEM = "optimal_tp_comm_overlap_cfg"


def tuned(folder: Path, **more: Any) -> TuningReport:
    config = TPOverlapTunerConfig(
        **{"model_name": "Qwen/Qwen3-0.6B", "output_dir": folder / "run", **more}
    )
    return TPOverlapTuner(config, overlap_threshold=0.5).run()


@pytest.mark.thorough
def test_the_interface_as_documented(tmp_path: Path) -> None:
    config = TPOverlapTunerConfig(
        model_name="Qwen/Qwen3-0.6B",
        max_tp_size=8,
        max_token_len=8192,
        operators=["fc1", "fc2", "qkv", "proj"],
        output_dir=str(tmp_path / "my_run"),
    )
    assert (config.hidden_size, config.ffn_hidden_size) == (1024, 3072)
    assert (config.num_attention_heads, config.num_kv_heads) == (16, 8)
    report = TPOverlapTuner(config, overlap_threshold=0.5).run()
    assert report.recommendations
    for recommendation in report.recommendations:
        assert recommendation.effective
        assert recommendation.overlap_of_shorter >= 0.5
        assert str(recommendation).startswith("TP=")


@pytest.mark.thorough
def test_the_folder(tmp_path: Path) -> None:
    tuned(tmp_path)
    run = tmp_path / "run"
    configurations = {f"{STEM}{size}" for size in ("", "_tp2", "_tp4", "_tp8")}
    names = {"traces", "tuning_report.json", "summary.txt"}
    names |= {f"{name}{end}" for name in configurations for end in (".yaml", ".flags.sh")}
    # Nothing overlaps on one rank, so there is no configuration for it.
    assert {path.name for path in run.iterdir()} == names
    cases = {path.name for path in (run / "traces").iterdir()}
    assert {"tp2_fc1_fprop_ring_agg0", "tp2_fc1_dgrad_bulk_sm2", "tp1_qkv_baseline"} <= cases
    legal = grid_cases((2, 4, 8), OPERATORS, (1, 2, 4, 8, 16), pipeline=True)
    ones = {f"tp1_{operator}_baseline" for operator in OPERATORS}
    assert cases == {case.run_id for case in legal} | ones
    assert (run / "traces/tp2_fc1_dgrad_bulk_sm2/tp_comm_overlap_cfg.yaml").is_file()


@pytest.mark.thorough
def test_the_report(tmp_path: Path) -> None:
    report = tuned(tmp_path)
    cells = json.loads((tmp_path / "run/tuning_report.json").read_text())
    assert cells == json.loads(json.dumps(report.record()))
    assert cells["counts"] == {"done": len(report.results)}
    grid = [c for c in cells["cases"] if c["tp_size"] > 1 and not c["refined"]]
    assert len(grid) == 204
    one = next(c for c in grid if c["config_id"] == "tp2_fc1_fprop_ring_agg0")
    parts = [one[f"forward_{n}_time_us"] for n in ("gemm", "comm", "other", "overlap")]
    assert one["forward_e2e_time_us"] == pytest.approx(sum(parts[:3]) - parts[3])
    assert set(cells["tp_scaling"]["results"]) == set(OPERATORS)
    assert all(rate["kind"] for rate in cells["rates"].values())
    assert "summary" not in cells
    text = (tmp_path / "run/summary.txt").read_text()
    assert "204 cases (204 done)" in text
    assert "TP scaling" in text


@pytest.mark.thorough_cases(every=17)
@pytest.mark.parametrize("model", ["Qwen/Qwen3-0.6B", "llama3-8b", "llama3-405b", "llama2-7b"])
@pytest.mark.parametrize("tokens", [1024, 8192, 65536])
@pytest.mark.parametrize("more", [{}, {"objective": "ratio"}, {"pipeline": True, "max_num_sm": 32}])
def test_every_configuration_is_valid_and_whole(
    tmp_path: Path, model: str, tokens: int, more: dict[str, Any]
) -> None:
    report = tuned(tmp_path, model_name=model, max_token_len=tokens, **more)
    for choice in report.choices:
        path = tmp_path / "run" / f"{STEM}_tp{choice.tp_size}.yaml"
        cells = yaml.safe_load(path.read_text())
        assert set(cells) == set(choice.layers)
        for layer, values in cells.items():
            assert list(values) == list(KEYS)
            assert all(isinstance(v, int | str) for v in values.values()), layer
        assert not {"proj_wgrad", "fc2_wgrad"} & set(cells)
        for operator in ("qkv", "fc1"):
            scattered = cells.get(f"{operator}_dgrad", {}).get("method", "bulk") != "bulk"
            assert not (scattered and f"{operator}_wgrad" in cells)
            assert scattered == choice.scattered_dgrad
        flags = report.companion(choice).flags
        findings = validate_file(path, Setting(choice.tp_size, tokens, "bf16", {}, flags))
        if choice.layers:
            odd = [f for f in findings if f.severity != "note"]
            # Under a shared switch the least harm on two ranks may be to overlap nothing.
            assert all("two ranks overlap nothing" in f.text for f in odd if choice.tp_size == 2)
            assert not odd or choice.tp_size == 2


def test_the_best_is_the_optimal_size_s(tmp_path: Path) -> None:
    report = tuned(tmp_path, model_name="llama3-70b")
    assert report.scaling.optimal == report.best.tp_size > 2
    run = tmp_path / "run"
    text = (run / f"{STEM}_tp{report.best.tp_size}.yaml").read_text()
    assert (run / f"{STEM}.yaml").read_text() == text


def sourced(script: Path) -> list[str]:
    """Return what a shell has after it sourced a script."""
    line = f'source "{script}"; echo "$CUDA_DEVICE_MAX_CONNECTIONS"; printf "%s\\n" '
    line += '"${TP_OVERLAP_FLAGS[@]}"'
    process = subprocess.run(["bash", "-uc", line], capture_output=True, text=True, check=True)
    return process.stdout.splitlines()


def test_the_flags_can_be_sourced(tmp_path: Path) -> None:
    report = tuned(tmp_path, model_name="llama3-70b")
    connections, *flags = sourced(tmp_path / "run" / f"{STEM}_tp8.flags.sh")
    assert connections == "1"
    position = flags.index("--tp-comm-overlap-cfg")
    assert Path(flags[position + 1]) == tmp_path / "run" / f"{STEM}_tp8.yaml"
    del flags[position + 1]
    assert flags == list(report.companion(report.choices[-1]).flags)
    assert flags[:2] == ["--tp-comm-overlap", "--sequence-parallel"]


@pytest.mark.thorough
def test_what_doesn_t_overlap_is_switched_off(tmp_path: Path) -> None:
    # Slow copy engines: rings cost more than they hide.
    report = tuned(tmp_path, rates={"copy_engine_bandwidth": 1e10}, pipeline=False)
    choice = report.choices[-1]
    assert choice.groups == {"bulk_dgrad", "bulk_wgrad"}
    flags = report.companion(choice).flags
    assert flags[3:] == ("--disable-tp-comm-overlap-ag", "--disable-tp-comm-overlap-rs")


@pytest.mark.thorough
def test_nothing_pays_at_all(tmp_path: Path) -> None:
    report = tuned(
        tmp_path, max_token_len=1024, rates={"sm_bandwidth": 1e7, "copy_engine_bandwidth": 1e9}
    )
    assert report.choices[-1].layers == {}
    text = (tmp_path / "run" / f"{STEM}_tp8.yaml").read_text()
    assert yaml.safe_load(text) == {}
    assert "leave --tp-comm-overlap out" in text
    script = (tmp_path / "run" / f"{STEM}_tp8.flags.sh").read_text()
    assert "TP_OVERLAP_FLAGS=(--sequence-parallel)" in script
    assert report.recommendations == [r for r in report.recommendations if r.case.tp_size != 8]


@pytest.mark.thorough
def test_files_are_for_a_release_and_a_generation(tmp_path: Path) -> None:
    plain = tuned(tmp_path, operators=["qkv"], max_tp_size=2)
    old = tuned(
        tmp_path / "old", operators=["qkv"], max_tp_size=2, te_version="1.13", hardware="dgx-b200"
    )
    texts = [report.yaml(report.best) for report in (plain, old)]
    assert "# For Transformer Engine from 2.0 on" in texts[0]
    assert "# For Transformer Engine from 1.8 on" in texts[1]
    keys = [set(yaml.safe_load(text)["qkv_fprop"]) for text in texts]
    assert keys[0] - keys[1] == {"comm_priority", "gemm_priority", "pipeline_rs_overlap_first_gemm"}
    case = "run/traces/tp2_qkv_fprop_ring_agg0/tp_comm_overlap_cfg.yaml"
    assert set(yaml.safe_load((tmp_path / "old" / case).read_text())["qkv_fprop"]) == keys[1]
    path = tmp_path / "run" / f"{STEM}.yaml"
    result = [finding.text for finding in validate_file(path, Setting(version=(1, 13)))]
    wrong = "qkv_fprop.comm_priority: Transformer Engine 1.13 doesn't take it, and stops"
    assert any(report.startswith(wrong) for report in result)
    assert not any("doesn't take it" in finding.text for finding in validate_file(path, Setting()))
    # Blackwell starts kernels in their order by itself.
    scripts = [(tmp_path / name / "run" / f"{STEM}.flags.sh").read_text() for name in ("", "old")]
    assert ["export CUDA_DEVICE_MAX_CONNECTIONS=1" in script for script in scripts] == [True, False]
    with pytest.raises(InputError, match="--te-version = 'new': is not a release"):
        tuned(tmp_path / "new", te_version="new")


@pytest.mark.thorough
def test_the_verdict_comes_first(tmp_path: Path) -> None:
    report = tuned(tmp_path, max_tp_size=4, model_name="llama3-70b")
    head, sep, layers = report.verdict().partition(" of the step (a micro-batch forward and back")
    assert sep
    text, _, share = head.partition(": ")
    assert text == f"on at TP {report.best.tp_size}"
    assert -30.0 < float(share.removesuffix(" %")) < -5.0
    assert layers.endswith(f"with 10 layers: {', '.join(report.best.layers)}")
    assert (tmp_path / "run/summary.txt").read_text().startswith(report.verdict())
    slow = {"sm_bandwidth": 1e7, "copy_engine_bandwidth": 1e9}
    off = tuned(tmp_path / "off", max_token_len=1024, max_tp_size=2, rates=slow)
    assert off.verdict() == "off at TP 2: no overlap saves time"


# Defects of the original that stay out.


def test_a_baseline_has_no_overlap_switched_on() -> None:
    """There it has the default configuration, which overlaps."""
    for operator in OPERATORS:
        case = LayerOverlap(4, operator, "fprop")
        # All else as with overlap, or what is compared isn't overlap alone.
        assert case_companion(case).flags == ("--sequence-parallel",)
        assert "leave --tp-comm-overlap out" in case_companion(case).text("x.yaml")


def test_the_tuned_file_reaches_the_training() -> None:
    """There every configuration measures the defaults: the file is read and not handed on."""
    for case in grid_cases((2, 4, 8), OPERATORS, (1, 4)):
        flags = case_companion(case).flags
        assert ("--tp-comm-overlap-cfg" in flags) == (not case.is_baseline)


def test_a_case_overlaps_its_own_phase_alone() -> None:
    """A layer without key overlaps by default, so the other kinds are switched off."""
    for case in grid_cases((4,), OPERATORS, (2,)):
        if case.is_baseline:
            continue
        flags = set(case_companion(case).flags)
        off = {flag for flag in flags if flag.startswith("--disable")}
        scattered = "--tp-comm-overlap-rs-dgrad" in flags
        assert len(off) == (4 if scattered else 3)
        assert scattered == (case.layer in {"qkv_dgrad", "fc1_dgrad"} and case.method != "bulk")


def test_rings_leave_all_multiprocessors_to_the_product() -> None:
    """A default's 16 multiprocessors and its margin would stay where only the method is given."""
    values = layer_values(LayerOverlap(4, "proj", "fprop", "ring_exchange"))
    assert (values["num_sm"], values["cga_size"], values["set_sm_margin"]) == (1, 1, False)


def test_clusters_divide_their_multiprocessors() -> None:
    for count in range(1, 33):
        values = layer_values(LayerOverlap(4, "fc1", "wgrad", "bulk", num_sm=count))
        assert count % values["cga_size"] == 0


# Folders.


@pytest.mark.thorough
def test_results_aren_t_overwritten_unasked(tmp_path: Path) -> None:
    tuned(tmp_path)
    with pytest.raises(InputError, match="holds results already"):
        tuned(tmp_path)
    config = TPOverlapTunerConfig("Qwen/Qwen3-0.6B", output_dir=tmp_path / "run")
    TPOverlapTuner(config).run(overwrite=True)


@pytest.mark.thorough
def test_nothing_is_written_unasked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    TPOverlapTuner(TPOverlapTunerConfig("llama3-8b")).run(write=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.thorough
def test_the_same_run_writes_the_same_bytes(tmp_path: Path) -> None:
    texts = []
    for name in ("a", "b"):
        tuned(tmp_path / name, model_name="llama3-8b")
        run = tmp_path / name / "run"
        texts.append({p.relative_to(run): p.read_bytes() for p in run.rglob("*") if p.is_file()})
    assert texts[0] == texts[1]


@pytest.mark.thorough
def test_a_summary_has_one_answer_about_the_size(tmp_path: Path) -> None:
    """Whether a size scales is said of it, not as a second size to use."""
    lines = tuned(tmp_path, max_tp_size=2, model_name="Qwen/Qwen3-0.6B").summary().splitlines()
    assert lines[0].startswith("on at TP 2: ")
    (scaling,) = (line for line in lines if line.startswith("TP scaling: "))
    assert scaling.endswith("linear: TP=2 is for models that do not fit otherwise")
    assert not [line for line in lines if "use TP=" in line]
