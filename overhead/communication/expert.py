"""Expert parallelism: tokens to their experts and back, in each direction of a step.

A token goes to each of its experts.  What is dispatched may be narrower than what is combined; the
backward dispatches the gradients of what was combined, and combines those of what was dispatched.
Where an expert is split, its ranks gather what they were sent, and reduce and scatter its results.
"""

from __future__ import annotations

from typing import Any

from overhead.arrays import xp
from overhead.communication.operation import operation
from overhead.formula import cited, declare, formula
from overhead.software.flat import PRICED
from overhead.special import never_drawn

DISPATCHER = cited("megatron", "megatron/core/transformer/moe/token_dispatcher.py")
NARROW = cited("deepseekv3", "section 3.3.3")
UNKNOWN = {"shapes": "unknown"}


# The busiest rank, where tokens choose their experts by chance.

LN_2 = 0.6931471805599453


def largest_draw(count):
    """Return the expected largest of as many standard normal draws (Blom 1958, section 6.9).

    Within 2 % from 8 on, 5 % of two; the quantile is Abramowitz and Stegun's, 26.2.23.
    """
    t = xp.sqrt(-2.0 * LN_2 * xp.log2(0.625 / (count + 0.25)))
    above = 2.515517 + t * (0.802853 + t * 0.010328)
    below = 1.0 + t * (1.432788 + t * (0.189269 + t * 0.001308))
    return xp.where(count > 1.0, t - above / below, 0.0)


@formula(
    returns="expert_load_imbalance",
    source="blom1958",
    where="section 6.9",
    assumes=(
        "each token draws its experts without replacement, equally likely up to the rank load "
        "imbalance",
        "many routed tokens: rank loads are normal, with a fixed sum over ranks",
    ),
)
def drawn_expert_imbalance(
    rank_load_imbalance, experts, experts_per_token, rank_tokens, etp, tp, ep
):
    """Expert load imbalance: rank load imbalance x expected multinomial maximum / mean."""
    # Each choice of a token rules out its other choices, as the sum over ranks is known.
    spread = (experts - experts_per_token) / xp.maximum(experts - 1.0, 1.0)
    routed = rank_tokens * experts_per_token * etp / tp
    deviation = xp.sqrt(xp.maximum(spread, 0.0) / xp.maximum(routed, 1.0))
    # At most all tokens have a rank's experts among theirs.
    most = xp.maximum(xp.minimum(ep, experts / xp.maximum(experts_per_token, 1.0)), 1.0)
    return xp.minimum(rank_load_imbalance * (1.0 + largest_draw(ep) * deviation), most)


EP: dict[str, Any] = {
    "dimension": "ep",
    "share": "routed_load_balance",
    "each": ("max_stage_moe_layers",),
    "forward": (1.0,),
    "backward": (1.0,),
    "repeated": "recomputed_exchanges",
    **DISPATCHER,
}
# Deduplicated dispatch has its own way over the levels of nodes and pods.
PLAIN = {"dispatcher": "all_to_all"}
for _name, _title, _message in (
    ("ep_dispatch", "all-to-all of expert tokens (dispatch)", "dispatch_message_bytes"),
    ("ep_combine", "all-to-all of expert outputs (combine)", "combine_message_bytes"),
):
    operation(_name, _title, "all_to_all", _message, group="ep", levels=PLAIN, **EP)
for _collective, _title, _message in (
    ("all_gather", "all-gather of ETP expert tokens", "etp_gather_bytes"),
    ("reduce_scatter", "reduce-scatter of ETP expert outputs", "etp_scatter_bytes"),
):
    operation(f"etp_{_collective}", _title, _collective, _message, group="etp", **EP)


# One layer and micro-batch.


@formula(**DISPATCHER)
def ep_layer_forward_time(
    experts, ep_dispatch_time, ep_combine_time, etp_all_gather_time, etp_reduce_scatter_time
):
    """EP communication per layer, forward or backward (0 without experts)."""
    split = etp_all_gather_time + etp_reduce_scatter_time
    return xp.where(experts > 0.0, ep_dispatch_time + ep_combine_time + split, 0.0)


# Dispatch to experts that sends a token once to each node, however many of its experts are there.
#
# The copy crosses the network, and the node's own links hand it on to the experts' ranks, once to
# each, which multiplies it for its experts itself; both at the same time, so that the slower of the
# two rules.  The way back is the same: a rank adds up its experts' results before it sends.

DEDUPLICATED = {"dispatcher": "deduplicated", "topology": "hierarchical"}
PODS = {"topology": "hierarchical", "shape": "three_levels"}
SOURCE = cited("deepseekv3", "section 3.2.2")
BOTH = "intra-node forwarding overlaps with inter-node traffic"
EVENLY = "experts are chosen evenly and independently of nodes, except for expert groups"


@formula(
    assumes=(
        EVENLY,
        "a group is chosen for its best experts, so that each that a token chooses has as many of "
        "its experts: within 2 % of such choices drawn up to as many nodes as groups, 6 % beyond",
        "groups and nodes have experts that follow one another",
    ),
    **SOURCE,
)
def distinct_nodes(ep_nodes, experts, experts_per_token, expert_groups, groups_per_token):
    """Destination nodes per token: nodes with at least one selected expert."""
    groups, chosen = xp.maximum(expert_groups, 1.0), xp.maximum(groups_per_token, 1.0)
    group_experts, here = experts / groups, experts / ep_nodes
    missed = never_drawn(experts, here, experts_per_token)
    # Of a node that is part of a group, where its group is chosen for as many experts as others or
    # for one more; of one that holds several groups.
    each = xp.floor(experts_per_token / chosen)
    more = experts_per_token / chosen - each
    fewer = (1.0 - more) * never_drawn(group_experts, here, each) + more * never_drawn(
        group_experts, here, each + 1.0
    )
    part = 1.0 - fewer
    some = 1.0 - never_drawn(groups, groups / ep_nodes, xp.minimum(chosen, experts_per_token))
    met = xp.where(ep_nodes >= groups, chosen / groups * part, some)
    limited = (chosen < groups) & (groups_per_token > 0.0)
    return ep_nodes * xp.where(limited, met, 1.0 - missed)


# Ranks are met as nodes are: both have experts that follow one another.
ONCE = cited(
    "hybridep",
    "csrc/kernels/intranode.cu @f7fb36f407, dispatch: is_token_in_rank; csrc/hybrid_ep"
    " likewise sends a token once to each rank",
)


@formula(assumes=(EVENLY,), when=PODS, **SOURCE)
def ep_inter_pod_fraction(ep_nodes, ep_pod_nodes):
    """Fraction of remote nodes in other pods."""
    return xp.maximum(ep_nodes - ep_pod_nodes, 0.0) / xp.maximum(ep_nodes - 1.0, 1.0)


@formula(
    returns="ep_nic_bandwidth",
    assumes=("all inter-node traffic passes the NIC, a part of it the inter-pod links as well",),
    when=PODS,
    **SOURCE,
)
def ep_pod_card_bandwidth(
    effective_inter_bandwidth,
    ep_oversubscription,
    ep_inter_pod_fraction,
    effective_pod_bandwidth,
    pod_oversubscription,
):
    """Effective NIC bandwidth of expert traffic: NIC and inter-pod links."""
    near = effective_inter_bandwidth / ep_oversubscription
    far = effective_pod_bandwidth / pod_oversubscription
    share = xp.where(ep_inter_pod_fraction > 0.0, ep_inter_pod_fraction, 1.0)
    return xp.where(ep_inter_pod_fraction > 0.0, xp.minimum(near, far / share), near)


@formula(returns="ep_far_latency", when=PODS, **SOURCE)
def ep_pod_latency(ep_inter_pod_fraction, pod_latency, inter_latency):
    """Inter-pod latency, if tokens leave the pod."""
    return xp.where(ep_inter_pod_fraction > 0.0, pod_latency, inter_latency)


@formula(returns="ep_energy_per_bit", when=PODS, **SOURCE)
def ep_pod_energy_per_bit(ep_inter_pod_fraction, pod_energy_per_bit, inter_energy_per_bit):
    """Energy of a bit that leaves its node, some of them their pod."""
    return (
        ep_inter_pod_fraction * pod_energy_per_bit
        + (1.0 - ep_inter_pod_fraction) * inter_energy_per_bit
    )


def _remote(message, experts_per_token, distinct_nodes, ep_nodes):
    """Return what crosses the network of messages to every expert: one a node in their place."""
    remote = distinct_nodes * (ep_nodes - 1.0) / ep_nodes
    return message / xp.maximum(experts_per_token, 1.0) * remote


# DeepEP's documents on ranks of one node, what stays on a rank counted: docs/legacy.md, 153 and 158
# of the 160 GB/s of an H800's links; README.md @0297fc8017, of the 722 of a B200's 643 and 675 with
# 24 SMs, 726 and 740 with 64.  Between nodes, what stays taken off, 45 and 46 of 50 GB/s.  What
# stays crosses no link, and is a smaller part the more ranks there are: a GB200 has 751 with 8, 687
# with 16, 653 with 24, 624 with 32 and 615 with 36 (docs/README_Hybrid-EP.md @41cad94449, means of
# dispatch and combine with 32 SMs).
PACE = "bytes to other ranks of a node move at 7/8 of the NCCL ring rate, as measured with 8 ranks"
RING_SHARE = 0.875


def _near(message, experts_per_token, distinct_ranks):
    """Return the bytes of messages to ranks: one per rank, not one per expert."""
    return message / xp.maximum(experts_per_token, 1.0) * distinct_ranks


def _ways(ep, ep_nodes, across, ep_members_in_node, within, far_latency, near_latency):
    """Return the slower of both ways, and one latency of each."""
    latency = xp.where(ep_nodes > 1.0, far_latency, 0.0)
    latency = latency + xp.where(ep_members_in_node > 1.0, near_latency, 0.0)
    return xp.where(ep > 1.0, xp.maximum(across, within) + latency, 0.0)


def _time(
    ep,
    ep_nodes,
    remote,
    ep_ranks_sharing_nic,
    ep_nic_bandwidth,
    near,
    ep_members_in_node,
    effective_intra_bandwidth,
    ep_far_latency,
    intra_latency,
):
    """Return the slower of both ways, and one latency of each: what leaves a rank counts."""
    across = remote * ep_ranks_sharing_nic / ep_nic_bandwidth
    share = (ep_members_in_node - 1.0) / ep_members_in_node
    within = near * share / effective_intra_bandwidth
    return _ways(ep, ep_nodes, across, ep_members_in_node, within, ep_far_latency, intra_latency)


def _priced_time(
    ep,
    ep_nodes,
    remote,
    ep_ranks_sharing_nic,
    ep_nic_bandwidth,
    nic_efficiency,
    near,
    ep_members_in_node,
    intra_bandwidth,
    channel_efficiency,
    inter_node_step_latency,
    step_latency,
    collective_launch_time,
):
    """Return the same with NCCL constants: link efficiencies, latencies, launch."""
    across = remote * ep_ranks_sharing_nic / (nic_efficiency * ep_nic_bandwidth)
    share = (ep_members_in_node - 1.0) / ep_members_in_node
    within = near * share / (RING_SHARE * channel_efficiency * intra_bandwidth)
    latencies = inter_node_step_latency, step_latency
    both = _ways(ep, ep_nodes, across, ep_members_in_node, within, *latencies)
    return xp.where(ep > 1.0, collective_launch_time + both, 0.0)


def _sent(remote, message, ep_members_in_node):
    """Return the bytes sent per rank: to other nodes, and to other ranks of the node."""
    return remote + message * (ep_members_in_node - 1.0) / ep_members_in_node


def _energy(ep, remote, ep_energy_per_bit, message, ep_members_in_node, intra_energy_per_bit):
    """Return the energy of the bytes of all ranks, inter-node and intra-node."""
    inside = message * (ep_members_in_node - 1.0) / ep_members_in_node
    return ep * 8.0 * (remote * ep_energy_per_bit + inside * intra_energy_per_bit)


DISPATCHED: dict[str, Any] = {"when": DEDUPLICATED, **SOURCE}
for _way in ("dispatch", "combine"):
    _message, _far = f"{_way}_message_bytes", f"{_way}_remote_bytes"
    _once = f"{_way}_rank_bytes"
    _reached = (_message, "experts_per_token", "distinct_ranks")
    declare(_once, _reached, _near, assumes=(EVENLY,), **ONCE)
    _every = (_message, "experts_per_token", "distinct_nodes", "ep_nodes")
    declare(_far, _every, _remote, assumes=(EVENLY,), **SOURCE)
    _inside = (_once, "ep_members_in_node")
    _crossing = ("ep", "ep_nodes", _far, "ep_ranks_sharing_nic", "ep_nic_bandwidth")
    _links = (*_crossing, *_inside, "effective_intra_bandwidth", "ep_far_latency", "intra_latency")
    _name = f"deduplicated_{_way}"
    declare(f"ep_{_way}_time", _links, _time, name=f"{_name}_time", assumes=(BOTH,), **DISPATCHED)
    _nccl = (*_crossing, "nic_efficiency", *_inside, "intra_bandwidth", "channel_efficiency")
    declare(
        f"ep_{_way}_time",
        (*_nccl, "inter_node_step_latency", "step_latency", "collective_launch_time"),
        _priced_time,
        name=f"priced_{_name}_time",
        assumes=(BOTH, PACE),
        when={**DEDUPLICATED, "library": PRICED},
        **ONCE,
    )
    _sends = (_far, *_inside)
    declare(f"ep_{_way}_sent_bytes", _sends, _sent, name=f"{_name}_sent_bytes", **DISPATCHED)
    _spends = ("ep", _far, "ep_energy_per_bit", *_inside, "intra_energy_per_bit")
    declare(f"ep_{_way}_energy", _spends, _energy, name=f"{_name}_energy", **DISPATCHED)
