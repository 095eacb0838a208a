"""A configuration is completed alike by every road: Python, specs, searches, measured rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overhead import Config
from overhead.completion import following
from overhead.config import RENAMED
from overhead.labels import LABELS
from sweeps.search.request import read_request
from sweeps.search.space import space_of
from sweeps.spec.framework import TEXTBOOK
from sweeps.spec.resolve import resolve
from sweeps.spec.sweep import Sweep
from sweeps.validate.predict import CHOOSING, Constants, MeasuredRow
from tests.tables import keyed

DENSE = keyed(
    "sequence_length=4096 hidden_size=4096 layers=32 heads=32 kv_heads=8 gated_mlp=1 "
    "ffn_size=14336 vocabulary_size=128256 tied_embeddings=0"
)
ROUTED = {**DENSE, "experts": 8, "experts_per_token": 2, "expert_ffn_size": 14336}
SOFTWARE = {
    "hardware": LABELS["hardware"].default,
    "precision": LABELS["precision"].default,
    "framework": f"{LABELS['framework'].default}+{TEXTBOOK}",
}
# Cards are told as a number by one road, as a share by another; what nobody stated depends on how
# a question is asked.
TOLD_APART = {"ranks_sharing_nic", "nics_per_node", "unknown_settings"}

NUMBERS = st.fixed_dictionaries(
    {},
    optional={
        "tp": st.sampled_from([1, 2, 4]),
        "cp": st.sampled_from([1, 2]),
        "pp": st.sampled_from([1, 2]),
        "ep": st.sampled_from([1, 2]),
        "virtual_pipeline_size": st.sampled_from([1, 2]),
        "micro_batch_size": st.sampled_from([1, 2]),
        "zero_stage": st.sampled_from([0, 1, 3]),
        "sequence_parallel": st.sampled_from([0, 1]),
        "hsdp_shard_size": st.just(2),
        "world_size": st.just(64),
        "oversubscription": st.just(2),
        "global_batch_size": st.just(256),
        "tp_overlap": st.just(0.5),
        "power_limit": st.just(500),
        "tokens_per_step": st.just(1048576),
        "lora_rank": st.just(16),
        "communication_channels": st.just(8),
        "capital_cost": st.just(30000),
        "target_memory_fraction": st.just(1),
        "expert_load_imbalance": st.just(1.5),
        "rank_load_imbalance": st.just(1.2),
        "weight_bytes": st.just(4),
        "gradient_accumulation_fusion": st.just(0),
    },
).filter(lambda numbers: not {"global_batch_size", "tokens_per_step"} <= numbers.keys())
WORDS = st.fixed_dictionaries(
    {},
    optional={
        name: st.sampled_from(LABELS[name].values)
        for name in tuple("recompute attention_kernel loss schedule context_parallel mask".split())
    },
)


def by_python(numbers: Mapping[str, Any], words: Mapping[str, str]) -> tuple[Any, dict[str, str]]:
    fields = {quantity: field for field, quantity in RENAMED.items()}
    known = {fields.get(name, name): value for name, value in numbers.items()}
    own = {name: value for name, value in known.items() if name in Config.__dataclass_fields__}
    more = {name: value for name, value in known.items() if name not in own}
    found = Config(**own, **words, more=more).completed()
    return found.numbers, found.labels


def by_spec(numbers: Mapping[str, Any], words: Mapping[str, str]) -> tuple[Any, dict[str, str]]:
    constants = {name: float(value) for name, value in numbers.items()}
    request = resolve(Sweep("", constants=constants, labels=dict(words)))
    return request.constants, {**request.implied, **following(request.labels, request.constants)}


def by_row(numbers: Mapping[str, Any], words: Mapping[str, str]) -> tuple[Any, dict[str, str]]:
    labels = {**SOFTWARE, "attention_kernel": kernel(words), **words}
    known = Constants(())
    constants, library = known.of(labels, step=True), known.library(labels)[0]
    row = MeasuredRow(numbers, labels, constants, library)
    evaluation = row.of_step()
    return row.numbers, evaluation.labels


def kernel(words: Mapping[str, str]) -> str:
    return words.get("attention_kernel", Config().attention_kernel)


@pytest.mark.thorough
@given(st.sampled_from([DENSE, ROUTED]), NUMBERS, WORDS)
@settings(max_examples=60, deadline=None)
def test_a_configuration_is_completed_alike(
    shapes: dict[str, Any], numbers: dict[str, Any], words: dict[str, str]
) -> None:
    asked = {**shapes, **numbers}
    spec, labels = by_spec(asked, words)
    python, chosen = by_python(asked, words)
    assert {name: labels[name] for name in chosen} == chosen
    for name in python.keys() - TOLD_APART:
        assert float(python[name]) == spec[name], name
    measured, read = by_row(asked, words)
    assert {name: labels[name] for name in read if name not in CHOOSING} == read
    for name in (measured.keys() & spec.keys()) - TOLD_APART:
        np.testing.assert_array_equal(measured[name], spec[name], err_msg=name)


PLAN = keyed(
    "tp=2 cp=1 pp=2 micro_batch_size=1 virtual_pipeline_size=1 zero_stage=1 sequence_parallel=1"
)
# Of a search the threshold is a share of memory that plans may take.
BATCH = tuple(
    "ep hsdp_shard_size world_size global_batch_size tokens_per_step target_memory_fraction".split()
)
OF_A_SEARCH = {"unknown_settings", "target_memory_fraction", "dp", "etp", "ep"}


@pytest.mark.thorough
@given(
    NUMBERS.map(lambda numbers: {k: v for k, v in numbers.items() if k not in (*PLAN, *BATCH)}),
    WORDS.map(lambda words: {"recompute": "none", "schedule": "one_f_one_b", **words}),
)
@settings(max_examples=20, deadline=None)
def test_a_searchs_plans_are_completed_as_a_specs(
    numbers: dict[str, Any], words: dict[str, str]
) -> None:
    words = {**words, "framework": SOFTWARE["framework"].removesuffix(f"+{TEXTBOOK}")}
    words |= {"schedule": "one_f_one_b"}
    asked = {**DENSE, **numbers, **PLAN, "world_size": 64, "global_batch_size": 256}
    space = space_of(read_request({**asked, **words}).first)
    searched = space.resolved
    spec, labels = by_spec(asked, words)
    found = {**searched.implied, **following(searched.labels, searched.constants)}
    assert {name: labels[name] for name in found} == found
    names = searched.constants.keys() - TOLD_APART - OF_A_SEARCH
    assert len(names) > 100
    for name in names:
        assert searched.constants[name] == spec[name] or np.isnan(spec[name]), name
