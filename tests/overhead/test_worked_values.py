"""Formulas whose terms no law or simulation tells apart, at values that are worked out by hand."""

import pytest

from overhead.everything import load
from overhead.formula import REGISTRY
from tests.tables import keyed

load()

# Formula, what it is given, its value, and how that comes about.
WORKED = [
    # Daly 2006, equation 37: sqrt(2*60*86400) = 3219.938, sqrt(60/172800) = 0.0186339, so
    # 3219.938*(1 + 0.0062113 + 0.0000386) - 60.
    ("checkpoint_interval", (60.0, 86400.0, 10.0, 0.0), 3180.062),
    # A step that is longer is not cut by a checkpoint.
    ("checkpoint_interval", (60.0, 86400.0, 4000.0, 0.0), 4000.0),
    # A checkpoint that takes twice the time between failures, or more: as long as that time.
    ("checkpoint_interval", (200.0, 100.0, 1.0, 0.0), 100.0),
    # Staged, the checkpoint before has to be written: 5000 s.
    ("checkpoint_interval", (60.0, 86400.0, 10.0, 5000.0), 5000.0),
    ("checkpoint_interval", (60.0, 86400.0, 10.0, 900.0), 3180.062),
    # A rate is halved at the half length, and 1/17 short of its limit at 16 times that.
    ("attention_slowdown", (512.0, 512.0), 2.0),
    ("attention_slowdown", (512.0, 8192.0), 1.0625),
    # Eight ranks send a message and receive an eighth more; alone a rank has nothing to reduce.
    ("nvls_inner_bytes", (8.0, 450e9), 1.125 / 450e9),
    ("nvls_inner_bytes", (1.0, 450e9), 0.0),
    # A tree between nodes slows what is reduced within them; one node has none.
    ("nvls_inner_share", (0.8, 1.0, 0.9), 0.8),
    ("nvls_inner_share", (0.8, 4.0, 0.9), 0.72),
    # 8 x 2 ranks in shards of 4; a shard that does not divide them is rounded up.
    ("hsdp_replica_size", (8.0, 2.0, 4.0), 4.0),
    ("hsdp_replica_size", (9.0, 1.0, 4.0), 3.0),
    # 2 x 32 ranks of a stage, 8 of which have different experts, in one piece each.
    ("edp", (2.0, 1.0, 32.0, 1.0, 8.0), 8.0),
    ("edp", (2.0, 1.0, 32.0, 2.0, 8.0), 4.0),
    # 4,096 tokens with 8 experts each on 4 ranks, of 7,168 numbers each, and a quarter more on the
    # busiest rank.
    ("routed_elements", (4096.0, 8.0, 7168.0, 1.25, 4.0), 8192.0 * 7168.0 * 1.25),
]


@pytest.mark.parametrize(
    ("name", "given", "value"), WORKED, ids=[f"{name} {given}" for name, given, _ in WORKED]
)
def test_a_formula_has_the_value_worked_by_hand(
    name: str, given: tuple[float, ...], value: float
) -> None:
    formula = REGISTRY[name]
    assert len(formula.inputs) == len(given)
    assert float(formula.kernel(*given)) == pytest.approx(value, rel=1e-6)


def test_weights_in_low_precision_leave_out_16_bit_attention_and_16_bit_layers() -> None:
    formula = REGISTRY["mixer_low_precision_parameters"]
    # Grouped-query attention alone: 64 heads of 128 in hidden states of 8,192, 8 key-value heads.
    given = dict.fromkeys(formula.inputs, 0.0) | keyed(
        "grouped_query_fraction=1.0 hidden_size=8192.0 heads=64.0 kv_heads=8.0 head_size=128.0 "
        "tp=1.0 low_precision_layer_fraction=1.0"
    )
    weights = 8192.0 * 8192.0 * 2.0 + 8192.0 * 2048.0

    def value(**changed: float) -> float:
        return float(formula.kernel(*(given | changed).values()))

    assert value() == weights
    assert value(tp=8.0) == weights / 8.0
    assert value(tp=16.0) == 8192.0 * 8192.0 * 2.0 / 16.0 + 8192.0 * 2048.0 / 8.0
    assert value(low_precision_layer_fraction=0.75) == 0.75 * weights
    assert value(bf16_attention=1.0) == 0.0
