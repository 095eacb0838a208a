"""Names of real kernels by class and kind: how many the rules get right, of each that there is."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from sweeps.traces.patterns import CLASSES, KINDS, load_patterns

FILE = Path(__file__).parents[1] / "data" / "traces" / "kernel_names.csv"
PATTERNS = load_patterns()


class Kernel(NamedTuple):
    """A name, what it is, and what the rules take it for."""

    name: str
    true: str
    true_kind: str
    found: str
    found_kind: str
    held_out: bool


def read() -> Iterator[Kernel]:
    with FILE.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            rule = PATTERNS.rule("kernel", row["name"])
            class_name = CLASSES[PATTERNS.code("kernel", row["name"])]
            kind = rule.kind if rule and class_name == "other" else ""
            held_out = row["held_out"] == "1"
            assert row["source"]
            yield Kernel(row["name"], row["class"], row["kind"], class_name, kind, held_out)


KERNELS = tuple(read())


class Score(NamedTuple):
    """Of one class: how many there are, and the rules' precision and recall."""

    count: int
    precision: float
    recall: float


def scores(pairs: Iterable[tuple[str, str]]) -> dict[str, Score]:
    pairs = list(pairs)
    found = {}
    for label in sorted({true for true, _ in pairs}):
        both = sum(pair == (label, label) for pair in pairs)
        true, said = (sum(pair[k] == label for pair in pairs) for k in (0, 1))
        found[label] = Score(true, both / said if said else 1.0, both / true)
    return found


def by_class(*, held_out: bool) -> dict[str, Score]:
    return scores((k.true, k.found) for k in KERNELS if k.held_out is held_out)


def by_kind(*, held_out: bool) -> dict[str, Score]:
    kernels = [k for k in KERNELS if k.held_out is held_out and k.true == k.found == "other"]
    return scores((k.true_kind or "(none)", k.found_kind or "(none)") for k in kernels)


def test_the_list() -> None:
    assert len({k.name for k in KERNELS}) == len(KERNELS) >= 400
    assert sum(k.held_out for k in KERNELS) >= 150
    assert {k.true for k in KERNELS} == set(CLASSES)
    assert {k.true_kind for k in KERNELS} == {"", *KINDS}
    assert not [k.name for k in KERNELS if k.true_kind and k.true != "other"]


@pytest.mark.parametrize("held_out", [False, True])
def test_precision_and_recall(held_out: bool, capsys: pytest.CaptureFixture[str]) -> None:
    classes, kinds = by_class(held_out=held_out), by_kind(held_out=held_out)
    with capsys.disabled():
        print(f"\nkernel names {'held out' if held_out else 'that rules were written by'}")
        for label, score in {**classes, **{f"other: {k}": s for k, s in kinds.items()}}.items():
            print(f"  {label:22} {score.count:4} {score.precision:7.3f} {score.recall:7.3f}")
    for label in ("communication", "gemm", "other", "copy"):
        if label in classes:
            assert classes[label].precision >= 0.97
            assert classes[label].recall >= 0.97
    # What says more for a reader may be silent, and must not be wrong.
    for label, score in kinds.items():
        assert label == "(none)" or score.precision >= 0.75
    known = [k for k in KERNELS if k.held_out is held_out and k.true_kind]
    named = sum(k.true_kind == k.found_kind for k in known) / len(known)
    assert named >= (0.75 if held_out else 0.99)


def test_fused_names_are_no_products() -> None:
    fused = [k for k in KERNELS if k.name.startswith(("triton_poi", "triton_red", "triton_per"))]
    assert any("addmm" in k.name for k in fused)
    assert any("all_reduce" in k.name for k in fused)
    assert {k.found for k in fused} == {"other"}
    assert {k.found_kind for k in fused} == {"pointwise", "reduction"}
    templates = [k for k in KERNELS if k.name.startswith("triton_tem_")]
    assert {k.found for k in templates} == {"gemm", "other"}
