"""A parallel plan: its degrees, where its groups lie, and when it can be."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from overhead.arrays import xp
from overhead.collectives.algorithm import ALGORITHMS, Requirement
from overhead.formula import derived, formula
from overhead.labels import CHOICES, HIERARCHY, PREFETCHES, STANDARD
from overhead.special import greatest_common_divisor

MEGATRON = "megatron"


@derived(returns="dp", assumes=("the remaining factor of the GPUs",))
def dp_of_world(world_size, tp, cp, pp):
    """Data-parallel size: the remaining factor of the GPUs."""
    return xp.maximum(xp.floor(world_size / (tp * cp * pp)), 1.0)


@derived(assumes=("a batch that is not divisible makes the plan invalid",))
def num_micro_batches(global_batch_size, dp, micro_batch_size):
    """Micro-batches of a step on a rank."""
    return xp.maximum(xp.ceil(global_batch_size / (dp * micro_batch_size)), 1.0)


@derived(returns="head_size", assumes=("heads share the hidden size, for nothing else is given",))
def head_size_of_hidden(hidden_size, heads):
    """Size of an attention head: the heads' share of the hidden size."""
    return xp.maximum(xp.floor(hidden_size / heads), 1.0)


__all__: list[str] = []

# In the order in which people name them.
DEGREES = (
    "tp",
    "pp",
    "cp",
    "ep",
    "etp",
    "dp",
    "hsdp_shard_size",
    "virtual_pipeline_size",
    "micro_batch_size",
)
BATCHES = ("global_batch_size", "num_micro_batches")


# Where the groups of a parallel plan sit: their ranks, and how they lie on nodes.
#
# Ranks are numbered as Megatron-LM does by default, innermost first: dense layers by tp, cp, dp,
# pp; experts cut the same ranks anew, by etp, ep, edp, pp.  So a group is every `group_stride`-th
# rank, `group_size` of them, from a start that is another one in each group of its kind.  Node k
# holds ranks k*gpus_per_node and on; nodes are full, or there is one.
#
# A size that doesn't come out even belongs to a plan that is refused below;
# it is rounded up, so that it stays a size.

# "zero" shards over data and context; "hsdp_*" cut those ranks into shards and their replicas.
GROUPS = ("tp", "cp", "dp", "zero", "hsdp_shard_size", "hsdp_replica", "pp", "etp", "ep", "edp")


ORDER = "megatron/core/parallel_state.py, the default order of ranks"
FULL_NODES = ("nodes are full, or there is one",)


# Sizes.


@formula(source=MEGATRON, where=ORDER)
def edp(tp, cp, dp, etp, ep):
    """Expert data-parallel size: the remaining factor of the ranks per stage."""
    return xp.ceil(tp * cp * dp / (etp * ep))


@formula(returns="group_size", source=MEGATRON, where=ORDER, when={"group": "hsdp_replica"})
def hsdp_replica_size(dp, cp, hsdp_shard_size):
    """Ranks that hold the same shard in hybrid sharding."""
    return xp.ceil(dp * cp / hsdp_shard_size)


# On nodes.


@derived(assumes=FULL_NODES)
def uneven_placement(group_size, group_stride, gpus_per_node):
    """Unevenly placed process groups (0 or 1).

    They lie alike if their members are on a node each, or if each node's members fill it in strides
    and groups and nodes fill one another.
    """
    span = group_size * group_stride
    ragged = (span % gpus_per_node > 0.0) & (gpus_per_node % span > 0.0)
    straddles = (gpus_per_node % group_stride > 0.0) | ragged
    within = (group_size > 1.0) & (group_stride < gpus_per_node)
    return xp.where(within & straddles, 1.0, 0.0)


@derived(assumes=(*FULL_NODES, "for unevenly placed groups only one member per node is certain"))
def members_in_node(uneven_placement, gpus_per_node, group_stride, group_size):
    """Members of a group in one node."""
    even = xp.minimum(xp.maximum(gpus_per_node / group_stride, 1.0), group_size)
    return xp.where(uneven_placement > 0.0, 1.0, even)


@derived(assumes=FULL_NODES)
def group_nodes(uneven_placement, gpus_per_node, group_stride, group_size):
    """Nodes that a group spans; of unevenly placed groups, the one that spans most.

    Blocks of size times stride ranks start at multiples of the common divisor of that and of a
    node, groups at any of a stride's ranks after; the latest start in a node reaches furthest.
    """
    uneven = uneven_placement > 0.0
    # Elsewhere it isn't needed, and the divisor of ones is found at once.
    period = greatest_common_divisor(
        xp.where(uneven, group_size * group_stride, 1.0), xp.where(uneven, gpus_per_node, 1.0)
    )
    start = gpus_per_node - 1.0 - period + xp.minimum(group_stride, period)
    most = 1.0 + xp.floor((start + (group_size - 1.0) * group_stride) / gpus_per_node)
    even = xp.minimum(xp.maximum(gpus_per_node / group_stride, 1.0), group_size)
    return xp.where(uneven, most, group_size / even)


# A pipeline's boundaries.


@derived(assumes=FULL_NODES)
def boundary_in_node(stage, tp, cp, dp, gpus_per_node):
    """Intra-node boundary to the next stage (`stage` from 0 to pp - 2): 0 or 1."""
    first = stage * tp * cp * dp
    end = (stage + 2.0) * tp * cp * dp
    return xp.where(
        xp.floor(first / gpus_per_node) == xp.floor((end - 1.0) / gpus_per_node), 1.0, 0.0
    )


@derived(
    assumes=(*FULL_NODES, "where stages straddle nodes, each end of a node parts two boundaries")
)
def node_boundaries(pp, gpus_per_node, tp, cp, dp):
    """Inter-node stage boundaries; the maximum if stages straddle nodes."""
    parted = xp.where(gpus_per_node % (tp * cp * dp) > 0.0, 2.0, 1.0)
    ends = xp.ceil(pp * tp * cp * dp / gpus_per_node) - 1.0
    return xp.minimum(pp - 1.0, parted * ends)


# Which parallel plans there are: conditions on degrees, shapes and batches, with their faults.


def _divides(divisor, number):
    return xp.asarray(number % divisor == 0.0)


PLAN = (
    Requirement(
        "product_of_degrees",
        "tp*cp*pp*dp must be the number of GPUs",
        lambda tp, cp, pp, dp, world_size: xp.asarray(tp * cp * pp * dp == world_size),
    ),
    Requirement(
        "nodes_not_filled",
        "the GPUs must fill whole nodes, or divide one evenly",
        lambda world_size, gpus_per_node: (
            _divides(world_size, gpus_per_node) | _divides(gpus_per_node, world_size)
        ),
    ),
    Requirement(
        "heads_not_divisible",
        "tp must divide the attention heads",
        lambda tp, heads: xp.asarray(heads % tp == 0.0),
    ),
    Requirement(
        "kv_heads_not_divisible",
        "tp must divide the key and value heads, or they must divide tp",
        lambda tp, kv_heads: _divides(tp, kv_heads) | _divides(kv_heads, tp),
    ),
    Requirement(
        "ffn_not_divisible",
        "tp must divide the inner size of the MLP",
        lambda tp, ffn_size: xp.asarray(ffn_size % tp == 0.0),
    ),
    Requirement(
        "too_few_layers",
        "every virtual stage must have a layer, or an end that counts as some: "
        "pp*virtual_pipeline_size up to the layers and such ends, each of which is up to a "
        "stage's places",
        lambda pp, virtual_pipeline_size, layers, embedding_layer_weight, head_layer_weight: (
            (pp * virtual_pipeline_size <= layers + embedding_layer_weight + head_layer_weight)
            & (
                xp.maximum(embedding_layer_weight, head_layer_weight)
                <= xp.ceil(
                    (layers + embedding_layer_weight + head_layer_weight)
                    / (pp * virtual_pipeline_size)
                )
            )
        ),
    ),
    Requirement(
        "layers_not_divisible",
        "pp*virtual_pipeline_size must divide the layers, unless stages may be uneven",
        lambda pp, virtual_pipeline_size, pipeline_layers, uneven_stages: (
            (uneven_stages > 0.0) | _divides(pp * virtual_pipeline_size, pipeline_layers)
        ),
    ),
    Requirement(
        "batch_not_divisible",
        "dp*micro_batch_size must divide the global batch",
        lambda dp, micro_batch_size, global_batch_size: _divides(
            dp * micro_batch_size, global_batch_size
        ),
    ),
    Requirement(
        "sequence_not_divisible_by_tp",
        "tp must divide the sequence of a context-parallel rank with sequence parallelism",
        lambda tp, cp, sequence_length, sequence_parallel: (
            (sequence_parallel == 0.0) | (tp == 1.0) | _divides(tp * cp, sequence_length)
        ),
    ),
    Requirement(
        "shards_not_divisible",
        "the ranks of a hybrid shard must divide dp*cp",
        lambda hsdp_shard_size, dp, cp: _divides(hsdp_shard_size, dp * cp),
    ),
    Requirement(
        "expert_ranks_not_divisible",
        "etp*ep must divide tp*cp*dp, of a mixture of experts",
        lambda etp, ep, tp, cp, dp, experts: (experts == 0.0) | _divides(etp * ep, tp * cp * dp),
    ),
    Requirement(
        "experts_not_divisible",
        "ep must divide the experts; it is 1 where there are none",
        lambda ep, experts: xp.where(experts > 0.0, _divides(ep, experts), ep == 1.0),
    ),
    Requirement(
        "expert_ffn_not_divisible",
        "etp must divide the inner size of an expert",
        lambda etp, expert_ffn_size: xp.asarray(expert_ffn_size % etp == 0.0),
    ),
    Requirement(
        "experts_without_sequence_parallelism",
        "a mixture of experts with tp above 1 needs sequence parallelism",
        lambda tp, experts, sequence_parallel: xp.asarray(
            (tp == 1.0) | (experts == 0.0) | (sequence_parallel > 0.0)
        ),
    ),
)

_HALVES = Requirement(
    "sequence_not_divisible_by_cp",
    "2*cp must divide the sequence: every rank has an early and a late part under a causal mask",
    lambda cp, sequence_length: (cp == 1.0) | _divides(2.0 * cp, sequence_length),
)
_PARTS = Requirement(
    "sequence_not_divisible_by_cp",
    "cp must divide the sequence",
    lambda cp, sequence_length: xp.asarray(sequence_length % cp == 0.0),
)
_HEADS = (
    Requirement(
        "heads_not_divisible_by_cp",
        "tp*cp must divide the attention heads (all_to_all context parallelism)",
        lambda tp, cp, heads: (cp == 1.0) | _divides(tp * cp, heads),
    ),
    Requirement(
        "kv_heads_not_divisible_by_cp",
        "tp*cp must divide the key and value heads (all_to_all context parallelism)",
        lambda tp, cp, kv_heads: (cp == 1.0) | _divides(tp * cp, kv_heads),
    ),
)
# What groups within context parallelism need besides.
GROUPED: dict[str, tuple[Requirement, ...]] = {
    "mixed": (
        Requirement(
            "ulysses_ranks_not_divisible",
            "ulysses_ranks must divide cp, and tp*ulysses_ranks the query and key heads (mixed"
            " context parallelism)",
            lambda tp, cp, ulysses_ranks, heads, kv_heads: (
                _divides(ulysses_ranks, cp)
                & _divides(tp * ulysses_ranks, heads)
                & _divides(tp * ulysses_ranks, kv_heads)
            ),
        ),
    )
}
# By the kind of context parallelism; "causal" comes before "full" attention.
CONTEXT: dict[tuple[str, str], tuple[Requirement, ...]] = {
    (kind, mask): (split, *heads)
    for kind, heads in (("all_to_all", _HEADS), ("ring", ()), ("all_gather", ()), ("mixed", ()))
    for mask, split in (("causal", _HALVES), ("full", _PARTS))
}

_ONE_CHUNK = Requirement(
    "virtual_stages_without_interleaving",
    "only interleaved and folded schedules have more than one virtual stage",
    lambda virtual_pipeline_size: xp.asarray(virtual_pipeline_size == 1.0),
)
_TWO_CHUNKS = Requirement(
    "not_two_virtual_stages",
    "a folded schedule (ZB-V, V-half, V-min, DualPipeV) has two virtual stages",
    lambda virtual_pipeline_size: xp.asarray(virtual_pipeline_size == 2.0),
)


def _no_fewer(words: str, each: float, more: float) -> Requirement:
    """Return the condition of so many micro-batches a stage, and some more."""
    return Requirement(
        "too_few_micro_batches",
        f"there must be no fewer micro-batches than {words}",
        lambda pp, num_micro_batches: xp.asarray(num_micro_batches >= each * pp + more),
    )


SCHEDULE: dict[str, tuple[Requirement, ...]] = {
    "gpipe": (_ONE_CHUNK,),
    "one_f_one_b": (_ONE_CHUNK,),
    "forward_only": (_ONE_CHUNK,),
    "interleaved": (
        Requirement(
            "micro_batches_not_divisible",
            "pp must divide the micro-batches with more than one virtual stage",
            lambda virtual_pipeline_size, pp, num_micro_batches: (
                (virtual_pipeline_size == 1.0) | _divides(pp, num_micro_batches)
            ),
        ),
    ),
    "zero_bubble_h1": (_ONE_CHUNK, _no_fewer("stages (ZB-H1)", 1.0, 0.0)),
    "zero_bubble_h2": (_ONE_CHUNK, _no_fewer("2*pp - 1 (ZB-H2)", 2.0, -1.0)),
    "zero_bubble_v": (_TWO_CHUNKS, _no_fewer("2*pp - 1 (ZB-V)", 2.0, -1.0)),
    "v_half": (_TWO_CHUNKS, _no_fewer("stages (V-half)", 1.0, 0.0)),
    "v_min": (_TWO_CHUNKS, _no_fewer("stages (V-min)", 1.0, 0.0)),
    "dual_pipe_v": (_TWO_CHUNKS, _no_fewer("2*pp (DualPipeV)", 2.0, 0.0)),
    "dual_pipe": (
        _ONE_CHUNK,
        _no_fewer("2*pp (DualPipe)", 2.0, 0.0),
        Requirement(
            "odd_stages_or_micro_batches",
            "stages and micro-batches must be even (DualPipe)",
            lambda pp, num_micro_batches: (pp % 2.0 == 0.0) & (num_micro_batches % 2.0 == 0.0),
        ),
    ),
}

_LAYERWISE = Requirement(
    "prefetch_without_sharded_weights",
    "fsdp_prefetch and zero3_prefetch gather weights layer by layer: stage 3 of ZeRO",
    lambda zero_stage: xp.asarray(zero_stage >= 3.0),
)
DATA: dict[str, tuple[Requirement, ...]] = dict.fromkeys(PREFETCHES, (_LAYERWISE,))

FRAMEWORK: dict[str, tuple[Requirement, ...]] = {
    "deepspeed": (
        Requirement(
            "plan_not_of_framework",
            "DeepSpeed has no pipeline with ZeRO stage 2 or 3",
            lambda zero_stage, pp: xp.asarray((zero_stage < 2.0) | (pp == 1.0)),
        ),
    )
}


_OF_MEGATRON = Requirement(
    "plan_not_of_framework",
    "Megatron-LM has no weights in host memory: parameter_offload 0",
    lambda parameter_offload: xp.asarray(parameter_offload == 0.0),
)
_OF_FSDP = Requirement(
    "plan_not_of_framework",
    "FSDP offloads all states or none: parameter_offload and optimizer_offload both 1 or both 0",
    lambda parameter_offload, optimizer_offload: (
        (parameter_offload == optimizer_offload)
        & ((parameter_offload == 0.0) | (parameter_offload == 1.0))
    ),
)


def _sharded_weights(words: str, stage: float) -> Requirement:
    """Return the condition of a stage of ZeRO from which weights may be in host memory."""
    return Requirement(
        "plan_not_of_framework",
        words,
        lambda parameter_offload, zero_stage: xp.asarray(
            (parameter_offload == 0.0) | (zero_stage >= stage)
        ),
    )


_SHARDED_STATES = Requirement(
    "plan_not_of_framework",
    "DeepSpeed offloads the optimizer from ZeRO stage 1 on, a fraction of it at stage 3 alone",
    lambda optimizer_offload, zero_stage: (
        (optimizer_offload == 0.0)
        | (zero_stage >= 3.0)
        | ((optimizer_offload == 1.0) & (zero_stage >= 1.0))
    ),
)
# What has to hold of states in the host's memory, by how they are offloaded.
OFFLOADED: dict[str, tuple[Requirement, ...]] = {
    "hybrid": (_OF_MEGATRON,),
    "zero_offload": (
        _sharded_weights("DeepSpeed offloads weights at ZeRO stage 3 alone", 3.0),
        _SHARDED_STATES,
    ),
    "fsdp_offload": (_sharded_weights("FSDP offloads from ZeRO stage 2 on", 2.0), _OF_FSDP),
}


# A collective that lacks the algorithm takes the standard one; here all would.
NO_ALGORITHM = Requirement(
    "algorithm_not_defined_on_topology",
    "some collective of the network must have the algorithm",
    lambda world_size: xp.asarray(world_size < 0.0),
)


NOT_OF_GROUPS = Requirement(
    "algorithm_not_defined_for_a_group",
    "the network and its algorithm must be defined for each group's number of ranks",
    lambda communication_upper_bound: ~xp.isnan(communication_upper_bound),
)


@cache
def _of_algorithm(network: str, name: str, _algorithms: int) -> tuple[Requirement, ...]:
    """Return what the algorithm of a plan's collectives must fulfil."""
    if name not in (*CHOICES, *ALGORITHMS.names(network)):
        return (NO_ALGORITHM,)
    algorithms = (algorithm for algorithm in ALGORITHMS.values() if algorithm.topology == network)
    # A choice takes what is defined, but for a network that some numbers of ranks don't make.
    limited = (
        member.conditions if member.name == name else member.of_ranks for member in algorithms
    )
    return (NOT_OF_GROUPS,) if any(limited) else ()


def requirements(labels: Mapping[str, str]) -> tuple[Requirement, ...]:
    """Return what a plan must fulfil."""
    context = (labels.get("context_parallel", ""), labels.get("mask", "causal"))
    network, algorithm = labels.get("topology", HIERARCHY), labels.get("algorithm", STANDARD)
    return (
        *_of_algorithm(network, algorithm, len(ALGORITHMS)),
        *PLAN,
        *CONTEXT.get(context, ()),
        *SCHEDULE.get(labels.get("schedule", ""), ()),
        *DATA.get(labels.get("dp_mechanism", ""), ()),
        *FRAMEWORK.get(labels.get("framework", ""), ()),
        *(OFFLOADED.get(labels.get("host_states", ""), ()) if "updating" in labels else ()),
        *GROUPED.get(context[0], ()),
    )
