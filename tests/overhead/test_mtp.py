"""Layers that predict further tokens: parameters, FLOPs, memory and time, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from overhead.evaluation import derive
from tests.overhead.communication_cases import count
from tests.overhead.memory_cases import DEEPSEEK_V3, LLAMA3_70B, held
from tests.overhead.step_cases import BARE, DEEPSEEK, GPT, evaluation
from tests.tables import keyed

HIDDEN, VOCABULARY = 7168, 129280
# One layer of DeepSeek-V3: latent attention with its norms, 257 experts, the router, two norms.
ATTENTION = HIDDEN * (1536 + 512 + 64) + 1536 * 128 * 192 + 512 * 128 * 256 + 128 * 128 * HIDDEN
EXPERT = 3 * HIDDEN * 2048
OWN = 2 * HIDDEN * HIDDEN + 3 * HIDDEN


def test_parameters_and_operations_by_hand() -> None:
    """The report's main model has 671 billion parameters, and its weights with the module 685."""
    one = DEEPSEEK_V3 | keyed(
        "mtp_layers=1 moe_layer_frequency=1 learned_positions=0 sliding_window=0 tied_embeddings=0 "
        "linear_bias=0 qkv_biases=0 qk_norms=0 layer_norm=0"
    )
    layer = ATTENTION + 1536 + 512 + 257 * EXPERT + (HIDDEN + 1) * 256 + 2 * HIDDEN
    assert float(derive("mtp_parameters", one)) == layer + OWN
    # The weights that are published with the module repeat embedding and output layer.
    whole = float(derive("parameters", one)) + layer + OWN + 2 * VOCABULARY * HIDDEN
    assert whole == pytest.approx(684.5e9, rel=1e-3)
    assert float(derive("parameters", {**one, "mtp_layers": 0})) == float(derive("parameters", one))
    weights = ATTENTION + 9 * EXPERT + HIDDEN * 256 + 2 * HIDDEN * HIDDEN + VOCABULARY * HIDDEN
    scores = 2 * 4096 * 128 * (192 + 128)
    assert float(derive("mtp_weight_flops_per_token", one)) == 2 * weights
    without, once, twice = (
        float(derive("model_flops_per_token", {**one, "mtp_layers": count})) for count in (0, 1, 2)
    )
    assert once - without == pytest.approx(3 * (2 * weights + scores), rel=1e-12)
    assert twice - once == pytest.approx(once - without, rel=1e-12)


def test_memory_is_on_the_last_stage_by_hand() -> None:
    """16 stages of 4 layers have three places free: the first of them costs no layer more."""
    plan = {**DEEPSEEK_V3, "ep": 64, "dp": 64, "pp": 16, "stage": np.array([0.0, 1.0, 15.0])}
    none, one = (held({**plan, "mtp_layers": count}) for count in (0, 1))
    more = np.subtract(one["stage_parameters"], none["stage_parameters"])
    # Beside its own the last stage needs the embedding's table.
    np.testing.assert_array_equal(more, [0.0, 0.0, OWN + 129280 * HIDDEN])
    np.testing.assert_array_equal(one["stage_layers"], none["stage_layers"])
    full = {**plan, "layers": 64}
    layers = held({**full, "mtp_layers": 2})["stage_layers"]
    np.testing.assert_array_equal(layers, [4.0, 4.0, 6.0])
    experts = held({**full, "mtp_layers": 2})["stage_moe_layers"]
    np.testing.assert_array_equal(experts, [1.0, 4.0, 6.0])
    # The softmax of each further token is kept in single precision, 8 bytes a logit beside it.
    tokens = 4096 * 129280
    np.testing.assert_array_equal(one["logits_memory"], [0.0, 0.0, tokens * 12.0])
    ends = np.subtract(one["output_activation_memory"], none["output_activation_memory"])
    np.testing.assert_array_equal(ends, [0.0, 0.0, 4096 * 12.0 * HIDDEN])
    alone = held({**plan, "mtp_layers": 1}, schedule="forward_only")
    assert float(alone["mtp_depths"]) == 0.0


def test_dense_models_add_dense_layers() -> None:
    plan = {**LLAMA3_70B, "tp": 8, "pp": 4, "stage": np.array([0.0, 3.0])}
    layers = held({**plan, "mtp_layers": 1})
    np.testing.assert_array_equal(layers["stage_mlp_layers"], [20.0, 21.0])
    np.testing.assert_array_equal(layers["stage_moe_layers"], [0.0, 0.0])


@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_step_grows_by_a_layer_and_the_logits_each(count: int) -> None:
    """On one stage a further token costs a layer, its projection, embedding, logits and loss."""
    plan = {**GPT, **BARE, "num_micro_batches": 8, "tp": 1, "pp": 1}
    none, more = (evaluation({**plan, "mtp_layers": n}) for n in (0, count))
    each = more["dense_layer_forward_time"] + more["dense_layer_backward_time"]
    kinds = ("forward", "input_gradient", "weight_gradient")
    total = sum(more[f"{of}_{kind}_time"] for of in ("mtp_projection", "logits") for kind in kinds)
    # Three norms and a concatenation, of 10 elements read or written; backward twice as many
    sizes = ("activation_bytes", "rank_tokens", "hidden_size", "elementwise_factor")
    moved = 30 * math.prod(float(more[size]) for size in sizes)
    joining = moved / float(more["memory_efficiency"] * more["memory_bandwidth"])
    total = total + more["loss_time"] + more["embedding_gpu_time"] + joining
    assert float(more["mtp_time"]) == pytest.approx(count * float(total))
    expected = 8 * count * float(each + total)
    assert float(more["busy_time"] + more["stage_imbalance_time"]) - float(
        none["busy_time"] + none["stage_imbalance_time"]
    ) == pytest.approx(expected, rel=1e-6)


@pytest.mark.thorough
def test_more_further_tokens_never_take_less() -> None:
    counts = np.arange(4.0)
    plan = {**DEEPSEEK, **BARE, "num_micro_batches": 32, "pp": 8, "ep": 8, "dp": 8}
    step = evaluation({**plan, "mtp_layers": counts})
    for name in ("step_time", "last_stage_memory", "model_flops_per_token", "all_dense_parameters"):
        assert (np.diff(step[name]) > 0.0).all(), name


@pytest.mark.parametrize("sequence_parallel", [0, 1])
def test_what_tensor_parallel_ranks_exchange_for_a_further_token(sequence_parallel: int) -> None:
    """Its embedding's parts, what its projection takes, twice as wide, and the results' columns."""
    plan = {
        **GPT,
        **BARE,
        "num_micro_batches": 6,
        "tp": 4,
        "pp": 1,
        "mtp_layers": 2,
        "sequence_parallel": sequence_parallel,
    }
    step = evaluation(plan)
    whole = {"mtp_all_reduce": (1, 0), "mtp_all_gather": (1, 0), "mtp_input_all_reduce": (0, 1)}
    split = {
        "mtp_reduce_scatter": (1, 0),
        "mtp_all_gather": (1, 2),
        "mtp_input_all_gather": (1, 1),
        "mtp_input_reduce_scatter": (0, 1),
    }
    kinds = ("all_reduce", "all_gather", "reduce_scatter")
    times = 0.0
    for name in (f"{of}_{kind}" for of in ("mtp", "mtp_input") for kind in kinds):
        counts = [float(count(step, name, way)) for way in ("forward", "backward")]
        expected = (split if sequence_parallel else whole).get(name, (0, 0))
        assert counts == [6 * 2 * each for each in expected]
        times += sum(counts) / 6 * float(step[f"{name}_time"])
    assert float(step["mtp_message_bytes"]) == 2 * float(step["tp_message_bytes"])
    assert float(step["mtp_communication_time"]) == pytest.approx(times)
    without = evaluation({**plan, "mtp_layers": 0})
    more = float(step["vocabulary_last_time"]) - 3 * float(without["vocabulary_last_time"])
    assert more == pytest.approx(times)
    alone = evaluation({**plan, "tp": 1, "sequence_parallel": 0})
    assert float(alone["mtp_communication_time"]) == 0.0


@pytest.mark.parametrize(("tp", "sequence_parallel"), [(1, 0), (4, 0), (4, 1)])
def test_norms_and_joined_inputs_of_a_further_token(tp: int, sequence_parallel: int) -> None:
    """Norms before and after: 3 reads, 3 writes; both inputs side by side: 2 and 2; thrice it."""
    machine = {"memory_efficiency": 0.5, "memory_bandwidth": 1e12, "elementwise_factor": 1.0}
    plan = {
        **GPT,
        **BARE,
        **machine,
        "tp": tp,
        "pp": 1,
        "mtp_layers": 1,
        "sequence_parallel": sequence_parallel,
    }
    step = evaluation(plan)
    tokens = float(step["rank_tokens"]) / (tp if sequence_parallel else 1)
    moved = 3 * (3 + 3 + 2 + 2) * 2 * tokens * plan["hidden_size"]
    without = evaluation({**plan, "elementwise_factor": 0.0})
    joining = float(step["mtp_time"]) - float(without["mtp_time"])
    assert joining == pytest.approx(moved / 5e11)
