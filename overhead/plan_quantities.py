"""The vocabulary of parallel plans: degrees, batches, sharding, precision, placement."""

from __future__ import annotations

from overhead.quantity import define

__all__: list[str] = []

DEGREES = (
    ("tp", "t", "tensor-parallel degree"),
    ("cp", "c_p", "context-parallel degree"),
    ("pp", "p", "pipeline-parallel degree"),
    ("dp", "d", "data-parallel degree"),
    ("ep", "e_p", "expert-parallel degree"),
    ("etp", "e_t", "tensor-parallel degree of experts"),
    ("virtual_stages", "v", "virtual pipeline stages of a rank (interleaving)"),
    ("hsdp_shard", "w", "ranks over which hybrid sharding shards"),
    ("micro_batch", "b", "sequences of a micro-batch"),
    ("global_batch", "B_g", "sequences of a step, over all ranks"),
    ("micro_batches", "m", "micro-batches of a step on a rank"),
)
for _name, _symbol, _words in DEGREES:
    define(_name, _symbol, "1", _words, minimum=1, integer=True)

define("zero_stage", "z", "1", "stage of ZeRO sharding", minimum=0, maximum=3, integer=True)
define(
    "sequence_parallel",
    "s_p",
    "1",
    "whether activations between tensor-parallel blocks are split along the sequence",
    minimum=0,
    maximum=1,
    integer=True,
)
define("expert_imbalance", r"\lambda", "1", "tokens of the busiest expert by the mean", minimum=1)
for _kind, _mark, _words in (
    ("weight", "w", "a weight"),
    ("gradient", "g", "a gradient"),
    ("optimizer", "o", "an optimizer's states, a parameter"),
    ("activation", "a", "an activation"),
):
    define(f"{_kind}_bytes", f"b_{_mark}", "byte", f"bytes of {_words}", minimum=0)

# Where a group of ranks sits.
define("group_size", "n", "1", "ranks of a group", minimum=1, integer=True)
define("group_stride", "r", "1", "distance in rank between a group's neighbours", minimum=1)
define("members_in_node", r"\mu", "1", "members of a group in one node", minimum=1)
define("group_nodes", "G_g", "1", "nodes that a group spans", minimum=1)
define(
    "uneven_placement",
    "u",
    "1",
    "whether some groups straddle nodes unevenly",
    minimum=0,
    maximum=1,
    integer=True,
)
