"""A user's own configuration: what is wrong with it, at which level, on which line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sweeps.errors import InputError
from sweeps.tuner.config_file import Finding
from sweeps.tuner.userbuffers import LAYERS, METHODS, default_method, legality
from sweeps.tuner.validate import Setting, validate_file
from tests.tables import examples

ALL = ("--tp-comm-overlap", "--sequence-parallel", "--tp-comm-overlap-cfg")


def found(tmp_path: Path, text: str, **setting: Any) -> list[Finding]:
    path = tmp_path / "cfg.yaml"
    path.write_text(text)
    return validate_file(path, Setting(**setting))


def only(findings: list[Finding], level: str, severity: str = "error") -> list[tuple[int, str]]:
    return [(f.line, f.text) for f in findings if (f.level, f.severity) == (level, severity)]


# Schema.


@pytest.mark.parametrize(
    ("text", "line", "words"),
    examples(__file__, "schema"),
)
def test_schema(tmp_path: Path, text: str, line: int, words: str) -> None:
    (finding,) = only(found(tmp_path, text), "schema")
    assert finding[0] == line
    assert words in finding[1]


@pytest.mark.thorough_cases("nested")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("- a\n- b\n", "line 1: is not a mapping"),
        ("a: [1\nb: 2\n", "line 2: is not YAML"),
        ("qkv_fprop: !!python/object/apply:os.system ['true']\n", "line 1: is not YAML"),
        ("qkv_fprop: &a\n  x: *b\n", "is not YAML"),
        ("a: 1\n---\nb: 2\n", "is not YAML"),
        ("{" * 3000, "can't be|not YAML|nested"),
        ("qkv_fprop:\n  method: ring\0exchange\n", r"line 2: is not YAML: .* U\+0000"),
    ],
)
def test_files_that_can_t_be_read(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        found(tmp_path, text)


def test_other_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        validate_file(tmp_path / "none.yaml")
    (tmp_path / "b.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="UTF-8"):
        validate_file(tmp_path / "b.yaml")


def test_an_empty_file_configures_nothing(tmp_path: Path) -> None:
    for text in ("", "# nothing\n", "{}\n"):
        (warning,) = only(found(tmp_path, text), "schema", "warning")
        assert "default" in warning[1]


def test_flags_as_numbers_and_anchors_are_fine(tmp_path: Path) -> None:
    text = (
        "qkv_fprop: &ring\n  method: ring_exchange\n  aggregate: 0\n  set_sm_margin: false\n"
        "fc1_fprop:\n  <<: *ring\n  aggregate: 1\n"
    )
    findings = found(tmp_path, text, tp_size=4)
    assert only(findings, "schema") == []
    assert not [f for f in findings if f.severity == "error"]


# Init and runtime: every layer with every method, beside the table.


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("layer", LAYERS)
def test_each_layer_with_each_method(tmp_path: Path, layer: str, method: str) -> None:
    operator, phase = layer.split("_")
    text = f"{layer}:\n  method: {method}\n  num_sm: 2\n  cga_size: 2\n  set_sm_margin: 0\n"
    findings = found(tmp_path, text)
    level = legality(operator, phase, method).level
    init = [finding for finding in only(findings, "init") if ".method" in finding[1]]
    runtime = [finding for finding in only(findings, "runtime") if ".method" in finding[1]]
    other_findings = [
        finding for finding in only(findings, "runtime", "warning") if ".method" in finding[1]
    ]
    assert (len(init), len(runtime), len(other_findings)) == dict(
        legal=(0, 0, 0), init_error=(1, 0, 0), run_error=(0, 1, 0), runs_as_other=(0, 0, 1)
    )[level]
    assert all(line == 2 for line, _ in (*init, *runtime, *other_findings))


@pytest.mark.parametrize(("text", "setting", "words"), examples(__file__, "runtime_errors"))
def test_runtime_errors(tmp_path: Path, text: str, setting: dict[str, Any], words: str) -> None:
    assert any(words in t for _, t in only(found(tmp_path, text, **setting), "runtime"))


@pytest.mark.parametrize(("text", "setting", "words"), examples(__file__, "runtime_warnings"))
def test_runtime_warnings(tmp_path: Path, text: str, setting: dict[str, Any], words: str) -> None:
    findings = found(tmp_path, text, **setting)
    assert any(words in t for _, t in only(findings, "runtime", "warning"))
    assert only(findings, "runtime") == []


MARGIN = "qkv_fprop: {method: ring_exchange, num_sm: 16, cga_size: 2, set_sm_margin: true%s}\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (MARGIN % "", "qkv_fprop.set_sm_margin = 1: takes 16 SMs from each product, and a ring's"),
        ("proj_fprop:\n  method: ring_exchange\n", "proj_fprop.set_sm_margin = 1: takes 16 SMs"),
        ("fc1_fprop:\n  num_sm: 4\n", "fc1_fprop.num_sm = 4: a ring ignores it"),
        # Kernels carry the chunks; a margin of one, and methods that use what is set aside.
        (MARGIN % ", use_ce: 0", ""),
        ("fc1_fprop: {num_sm: 1, set_sm_margin: 1}\n", ""),
        ("fc1_wgrad: {num_sm: 8, set_sm_margin: 1}\n", ""),
        ("proj_fprop: {method: pipeline, num_sm: 16, set_sm_margin: 1}\n", ""),
    ],
)
def test_multiprocessors_that_a_ring_sets_aside(tmp_path: Path, text: str, words: str) -> None:
    warned = [t for _, t in only(found(tmp_path, text), "runtime", "warning") if "ring" in t]
    named = [t for t in warned if "set_sm_margin = " in t or "num_sm = " in t]
    assert len(named) == bool(words)
    assert all(words in t for t in named)


# Flags.

RINGS = "".join(
    f"{name}_dgrad: {{method: ring_exchange, num_sm: 1, cga_size: 1, set_sm_margin: 0}}\n"
    for name in ("qkv", "fc1")
)


RING = "fc1_fprop: {method: ring_exchange}\n"
SCATTERED = (*ALL, "--tp-comm-overlap-rs-dgrad")
ATOMIC = "".join(f"{name}_fprop:\n  method: {{}}\n  atomic_gemm: 1\n" for name in ("qkv", "proj"))
# By level and severity, each fault with its line and some of its words.
FAULTS: list[tuple[str, dict[str, Any], str, str, list[tuple[int, str]]]] = [
    # A weight gradient beside a scattered input gradient.
    ("fc1_dgrad:\n  method: ring_exchange\nfc1_wgrad:\n  num_sm: 4\n", {}, "init", "error",
     [(3, "leave fc1_wgrad out")]),
    ("fc1_dgrad:\n  method: bulk\nfc1_wgrad:\n  num_sm: 4\n", {}, "init", "error", []),
    # The wrong collective.
    ("fc1_fprop:\n  is_reduce_scatter: 1\n", {}, "init", "error", [(2, "all_gather")]),
    ("fc1_dgrad:\n  method: ring_exchange\n  is_reduce_scatter: 1\n", {}, "init", "error", []),
    # Atomic products need FP8, and a ring in both layers.
    (ATOMIC.format("ring_exchange", "ring_exchange"), {"precision": "fp8"}, "init", "error", []),
    (ATOMIC.format("ring_exchange", "ring_exchange"), {"precision": "bf16"}, "init", "error",
     [(3, "is for FP8 alone"), (6, "is for FP8 alone")]),
    (ATOMIC.format("ring_exchange", "pipeline"), {"precision": "fp8"}, "init", "error",
     [(3, "both as ring_exchange"), (6, "both as ring_exchange")]),
    # A whole set of keys takes over no default.
    ("proj_fprop:\n  method: ring_exchange\n  num_sm: 1\n  cga_size: 1\n  set_sm_margin: 0\n", {},
     "runtime", "warning", []),
    # Flags that are missing, and one too many.
    (RING, {"flags": ALL}, "flags", "error", []),
    (RING, {"flags": ALL[1:]}, "flags", "error", [(0, "--tp-comm-overlap is missing; add it")]),
    (RING, {}, "flags", "note",
     [(0, "needs --tp-comm-overlap --sequence-parallel"), (0, "no key for qkv_fprop")]),
    (RINGS, {"flags": ALL}, "flags", "error", [(0, "--tp-comm-overlap-rs-dgrad is missing")]),
    (RINGS, {"flags": SCATTERED}, "flags", "error", []),
    ("fc1_fprop: {num_sm: 1}\n", {"flags": SCATTERED}, "flags", "error", [(0, "leave it out")]),
    (RINGS.splitlines()[0], {}, "flags", "error",
     [(1, "qkv_dgrad ring_exchange, fc1_dgrad bulk")]),
    ("\nfc1_wgrad: {num_sm: 4}\n", {"flags": (*ALL, "--disable-tp-comm-bulk-wgrad")}, "flags",
     "warning", [(2, "--disable-tp-comm-bulk-wgrad is set: fc1_wgrad won't overlap; leave out "
                  "the one or the other")]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "setting", "level", "severity", "expected"), FAULTS)
def test_faults(
    tmp_path: Path,
    text: str,
    setting: dict[str, Any],
    level: str,
    severity: str,
    expected: list[tuple[int, str]],
) -> None:
    faults = only(found(tmp_path, text, **setting), level, severity)
    assert [line for line, _ in faults] == [line for line, _ in expected]
    assert all(words in fault for (_, fault), (_, words) in zip(faults, expected, strict=True))


def test_layers_without_a_key_overlap_all_the_same(tmp_path: Path) -> None:
    notes = only(found(tmp_path, "fc1_fprop: {num_sm: 1}\n"), "flags", "note")
    assert "qkv_fprop" in notes[-1][1]
    assert "proj_wgrad" not in notes[-1][1]
    text = "".join(
        f"{layer}: {{method: {default_method(layer)}}}\n"
        for layer in LAYERS
        if layer not in {"proj_wgrad", "fc2_wgrad"}
    )
    assert len(only(found(tmp_path, text), "flags", "note")) == 1


def test_the_seed_s_example(tmp_path: Path) -> None:
    """A ring keeps the pipeline's multiprocessors, unused, and nobody heeds its aggregates."""
    text = (
        "qkv_fprop:\n  method: ring_exchange\n  aggregate: 1\n"
        "proj_fprop:\n  method: ring_exchange\n  aggregate: 1\n"
        "fc1_dgrad:\n  method: bulk\n  num_sm: 4\n  set_sm_margin: 0\n"
    )
    findings = found(tmp_path, text, tp_size=2)
    assert not [f for f in findings if f.severity == "error"]
    warnings = only(findings, "runtime", "warning")
    assert [line for line, _ in warnings] == [3, 4, 5, 6]
