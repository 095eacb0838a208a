"""Pipeline schedules: time, bubble, exposed transfers, micro-batches in flight, uneven ends.

A pipeline's time is the time for which its devices compute, its bubble, and what transfers add
that nothing hides.  Each form is compared with an event simulation of its schedule
(tests/simulator/pipeline.py); what isn't exact says by how much.
"""

from __future__ import annotations

from collections.abc import Callable

from overhead.arrays import xp
from overhead.formula import declare, derived, formula
from overhead.interleaved import interleaved_time
from overhead.labels import PAIRED, UNEVEN_SCHEDULES
from overhead.model.order import NUMBERS, ORDERED
from overhead.quantity import Array

__all__: list[str] = []

# The schedules by name, the conditions under which their forms hold, and their sources.


GPIPE = {"schedule": "gpipe"}
PLAIN = {"schedule": "one_f_one_b"}
# Passes of one direction follow one another.
FLOW = {"schedule": "gpipe|forward_only"}
UNCHUNKED = {"schedule": "gpipe|one_f_one_b|forward_only"}
INTERLEAVED = {"schedule": "interleaved"}
H1 = {"schedule": "zero_bubble_h1"}
H2 = {"schedule": "zero_bubble_h2"}
# Each device updates its weights when it is done, and a check comes afterwards.
STAGGERED = {**H2, "optimizer": "staggered"}
PAIRS = {"schedule": "|".join(PAIRED)}
FORWARD = {"schedule": "forward_only"}
UNEVEN = {"stages": "uneven"}
PARTED = {**UNEVEN, "schedule": "|".join(UNEVEN_SCHEDULES)}

EVEN = "all stages take equally long"
SHORTER = "by a stated order of layers shorter middle stages shorten pipeline fill and drain"
ASYNCHRONOUS = "a transfer occupies no device"
WHOLE_GROUPS = "the micro-batches are a multiple of the stages"
SPLIT = "extra work of first and last stages is split between passes as a stage is"
AT_LEAST_PP = "at least pp micro-batches"
AT_LEAST_H2 = "at least 2*pp - 1 micro-batches"
AT_LEAST_DUAL = "at least 2*pp micro-batches, both even"

# The part of a backward for which the stage before waits.
INPUT = "(stage_backward_time - stage_weight_time)"


# What transfers between stages add to a pipeline although they occupy no device.


def rounds(num_micro_batches: Array, pp: Array) -> Array:
    """Return how often a transfer there and back is waited for in plain 1F1B.

    One round fills and drains the pipeline; of the pp micro-batches that follow one another through
    all stages, a transfer each but for one.
    """
    return num_micro_batches + pp - 2.0 - xp.ceil((num_micro_batches - 1.0) / pp)


@derived(returns="exposed_pp_time", assumes=(EVEN, ASYNCHRONOUS), when=FLOW)
def gpipe_p2p_time(has_backward, p2p_time, pp):
    """Exposed PP communication, GPipe: pipeline fill and drain; forward-only: fill."""
    return (1.0 + has_backward) * p2p_time * (pp - 1.0)


@derived(returns="exposed_pp_time", assumes=(EVEN, ASYNCHRONOUS), when=PLAIN)
def one_f_one_b_p2p_time(p2p_time, num_micro_batches, pp):
    """Exposed PP communication, 1F1B: nearly two transfers per micro-batch, not overlapped."""
    return 2.0 * p2p_time * rounds(num_micro_batches, pp)


@derived(
    returns="exposed_pp_time",
    assumes=(EVEN, ASYNCHRONOUS, WHOLE_GROUPS, "with one virtual stage it is plain 1F1B"),
    when=INTERLEAVED,
)
def interleaved_p2p_time(
    pp, virtual_pipeline_size, p2p_time, num_micro_batches, stage_forward_time, stage_backward_time
):
    """Exposed PP communication, interleaved 1F1B.

    Exact while a transfer is no longer than a chunk's forward and backward, each; beyond that the
    pipeline's time is within 15 % of the simulated one up to transfers of five chunks.
    """
    ways = 2.0 * p2p_time * (pp * virtual_pipeline_size - 1.0)
    shorter = xp.minimum(stage_forward_time, stage_backward_time)
    late = xp.maximum(virtual_pipeline_size * p2p_time - shorter, 0.0)
    chunked = ways + xp.maximum(num_micro_batches - pp, 0.0) * late
    plain = 2.0 * p2p_time * rounds(num_micro_batches, pp)
    return xp.where(pp > 1.0, xp.where(virtual_pipeline_size > 1.0, chunked, plain), 0.0)


@derived(
    returns="exposed_pp_time",
    assumes=(EVEN, ASYNCHRONOUS, AT_LEAST_PP, "weights take no longer than forward or input"),
    when=H1,
)
def zero_bubble_h1_p2p_time(p2p_time, num_micro_batches, pp, stage_weight_time):
    """Exposed PP communication, ZB-H1: overlapped with wgrad in steady state."""
    count = rounds(num_micro_batches, pp)
    ends = 2.0 * (pp - 1.0)
    beyond = xp.maximum(2.0 * p2p_time - stage_weight_time, 0.0)
    return 2.0 * p2p_time * xp.minimum(count, ends) + beyond * xp.maximum(count - ends, 0.0)


@derived(returns="exposed_pp_time", assumes=(EVEN, ASYNCHRONOUS, AT_LEAST_H2), when=H2)
def zero_bubble_h2_p2p_time(
    pp, p2p_time, stage_backward_time, stage_weight_time, stage_forward_time, num_micro_batches
):
    """Exposed PP communication, ZB-H2 with synchronized updates: one or two transfers per stage.

    Exact while a transfer takes no longer than half of a forward and the input's backward; beyond
    that a rough estimate.
    """
    tail = stage_backward_time - 3.0 * stage_weight_time
    # Bubble of a stage beyond the forward for which the stage after waits at first.
    beyond = xp.maximum(tail, stage_backward_time - stage_weight_time - 2.0 * stage_forward_time)
    ends = (pp - 1.0) * (p2p_time + xp.minimum(xp.maximum(beyond + p2p_time, 0.0), p2p_time))
    # What every micro-batch waits if transfers outlast the twice as many micro-batches in flight.
    late = p2p_time - 0.5 * (stage_forward_time + stage_backward_time + stage_weight_time)
    return ends + xp.where(pp > 1.0, num_micro_batches - 1.0, 0.0) * xp.maximum(late, 0.0)


@derived(returns="exposed_pp_time", assumes=(EVEN, ASYNCHRONOUS, AT_LEAST_H2), when=STAGGERED)
def staggered_zero_bubble_h2_p2p_time(
    p2p_time, pp, num_micro_batches, stage_forward_time, stage_backward_time, stage_weight_time
):
    """Exposed PP communication, ZB-H2 with device-by-device updates: two transfers per stage.

    Exact while a transfer takes no longer than half of a forward and the input's backward; beyond
    that a rough estimate.
    """
    late = p2p_time - 0.5 * (stage_forward_time + stage_backward_time + stage_weight_time)
    beyond = xp.where(pp > 1.0, num_micro_batches - 1.0, 0.0) * xp.maximum(late, 0.0)
    return 2.0 * p2p_time * (pp - 1.0) + beyond


# DualPipeV is half of a DualPipe on twice as many ranks: its chunks are half as long, and a rank
# holds the weights of one stage instead of two (`weight_copies`).


@derived(returns="exposed_pp_time", assumes=(EVEN, ASYNCHRONOUS, AT_LEAST_DUAL), when=PAIRS)
def dual_pipe_p2p_time(p2p_time, pp, weight_copies, num_micro_batches):
    """Exposed PP communication, DualPipe and DualPipeV: at most nearly one transfer per chunk."""
    several = p2p_time * (2.0 / weight_copies * pp - 1.0) * (num_micro_batches / pp + 2.0)
    return xp.where(pp > 1.0, several, 0.0 * p2p_time)


# A device between the ends waits less where these have less to do.

ENDED = {**PARTED, "shapes": "known"}


@derived(returns="bubble_time", when=ENDED)
def ended_bubble_time(balanced_bubble_time, uneven_time):
    """Bubble of a middle stage, less the time saved by shorter first and last stages."""
    return xp.maximum(balanced_bubble_time + xp.minimum(uneven_time, 0.0), 0.0)


@derived(returns="stage_imbalance_time", when=ENDED)
def ended_imbalance_time(balanced_bubble_time, uneven_time):
    """Time that longer ends add; below nothing only where no stage is between them."""
    saved = xp.minimum(balanced_bubble_time + uneven_time, 0.0)
    return xp.where(uneven_time < 0.0, saved, uneven_time)


# What a device computes.


@formula(source="narayanan2021", where="section 2.2.1, the ideal time")
def busy_time(num_micro_batches, stage_forward_time, has_backward, stage_backward_time):
    """Time for which a device computes all micro-batches."""
    return num_micro_batches * (stage_forward_time + has_backward * stage_backward_time)


@formula(
    returns="busy_time",
    source="deepseekv3",
    where="section 3.2.1, figure 5: the overlapped cells of the first rank",
    when=PAIRS,
)
def dual_pipe_busy_time(
    num_micro_batches,
    stage_forward_time,
    stage_backward_time,
    weight_copies,
    pp,
    stage_overlapped_time,
):
    """Compute time of the first rank: single passes, and overlapped pairs."""
    pairs = xp.maximum(num_micro_batches + 0.5 * weight_copies - 1.5 * pp, 0.0)
    both = stage_forward_time + stage_backward_time
    return num_micro_batches * both + pairs * (stage_overlapped_time - both)


# Bubbles: how long a device waits while the pipeline fills and drains, transfers apart.


@formula(
    returns="balanced_bubble_time",
    source="narayanan2021",
    where="section 2.2.1 (GPipe: Huang et al. 2019, section 2.3)",
    assumes=(EVEN, SHORTER),
    when=UNCHUNKED,
)
def plain_bubble_time(
    pp, stage_forward_time, has_backward, stage_backward_time, shorter_stages_time
):
    """Bubble of GPipe, 1F1B and forward passes alone (prefill): time of the other stages."""
    whole = (pp - 1.0) * (stage_forward_time + has_backward * stage_backward_time)
    return xp.maximum(whole - shorter_stages_time, 0.0)


@formula(
    returns="balanced_bubble_time",
    source="narayanan2021",
    where="section 2.2.2",
    assumes=(EVEN, SHORTER, WHOLE_GROUPS),
    when=INTERLEAVED,
)
def interleaved_bubble_time(
    pp, stage_forward_time, stage_backward_time, shorter_stages_time, virtual_pipeline_size
):
    """Bubble of interleaved 1F1B: time of a chunk of the other stages."""
    whole = (pp - 1.0) * (stage_forward_time + stage_backward_time)
    return xp.maximum(whole - shorter_stages_time, 0.0) / virtual_pipeline_size


@formula(
    returns="balanced_bubble_time",
    source="qi2023",
    where="section 2.3, table 2; where weights take longer than a forward, by simulation",
    assumes=(EVEN, AT_LEAST_PP),
    when=H1,
)
def zero_bubble_h1_bubble_time(pp, stage_forward_time, stage_backward_time, stage_weight_time):
    """Bubble of the zero-bubble schedule that needs no more memory than 1F1B."""
    inputs = stage_backward_time - stage_weight_time
    longer = xp.maximum(stage_forward_time, inputs)
    return (pp - 1.0) * xp.maximum(stage_forward_time + inputs - stage_weight_time, longer)


@formula(
    returns="balanced_bubble_time",
    source="qi2023",
    where="section 2.3, table 2; its least by simulation",
    assumes=(EVEN, AT_LEAST_H2, "all devices update together"),
    when=H2,
)
def zero_bubble_h2_bubble_time(pp, stage_forward_time, stage_backward_time, stage_weight_time):
    """Bubble of the zero-bubble schedule of twice the memory, if all devices wait for the last."""
    least = xp.maximum(
        stage_forward_time, stage_backward_time - stage_weight_time - stage_forward_time
    )
    tail = stage_forward_time + stage_backward_time - 3.0 * stage_weight_time
    return (pp - 1.0) * xp.maximum(least, tail)


@formula(
    returns="balanced_bubble_time",
    source="qi2023",
    where="section 2.3, table 2, and section 4; its least by simulation",
    assumes=(EVEN, AT_LEAST_H2, "each device updates when it is done"),
    when=STAGGERED,
)
def staggered_zero_bubble_h2_bubble_time(
    pp, stage_forward_time, stage_backward_time, stage_weight_time
):
    """ZB-H2 bubble with device-by-device optimizer updates."""
    least = xp.maximum(stage_backward_time - stage_weight_time - stage_forward_time, 0.0)
    tail = stage_forward_time + stage_backward_time - 3.0 * stage_weight_time
    return (pp - 1.0) * xp.maximum(least, tail)


@formula(
    returns="balanced_bubble_time",
    source="dualpipe",
    where="README, table of bubbles, and deepseekv3, section 3.2.1; at least the pair that the"
    " middle ranks don't overlap",
    assumes=(EVEN, AT_LEAST_DUAL),
    when=PAIRS,
)
def dual_pipe_bubble_time(
    pp,
    weight_copies,
    stage_overlapped_time,
    stage_backward_time,
    stage_weight_time,
    stage_forward_time,
):
    """Bubble of DualPipe and DualPipeV: up to 4 % of the pipeline time above simulation."""
    ends = stage_overlapped_time + stage_backward_time - 3.0 * stage_weight_time
    single = stage_forward_time + stage_backward_time - stage_overlapped_time
    return xp.maximum((pp - weight_copies) * ends, weight_copies * xp.maximum(single, 0.0)) / 2.0


def _own_chunks(
    num_micro_batches,
    pp,
    chunks,
    forward,
    backward,
    shorter,
    uneven,
    order_holds,
    first,
    last,
    output,
    vocabulary,
    *values,
):
    """Return the bubble by the order of passes, less what uneven ends are told to add."""
    (dense_f, moe_f, attention_f, dense_b, moe_b, attention), values = values[:6], values[6:]
    excess, (layers, ahead, behind, *numbers) = values[:6], values[6:]
    moe_f, moe_b = order_holds * (moe_f - 2.0 * dense_f), order_holds * (moe_b - 2.0 * dense_b)
    attention_f, attention_b = order_holds * attention_f, order_holds * (attention - attention_f)
    moe, attention = moe_f + moe_b, attention_f + attention_b
    at_first, between, at_last = (
        excess[k] * moe + excess[k + 1] * attention for k in range(0, 6, 2)
    )
    head = output + vocabulary
    time = interleaved_time(
        num_micro_batches,
        pp,
        chunks,
        forward - (excess[2] * moe_f + excess[3] * attention_f),
        backward - (excess[2] * moe_b + excess[3] * attention_b),
        first + between - at_first,
        head,
        head - (last + between - at_last),
        moe_f,
        moe_b,
        attention_f,
        attention_b,
        xp.ceil((layers + ahead + behind) / (pp * chunks)),
        ahead,
        *numbers,
    )
    even = xp.maximum((pp - 1.0) * (forward + backward) - shorter, 0.0)
    bubble = xp.maximum(time - num_micro_batches * (forward + backward) - uneven, 0.0)
    return xp.where((pp > 1.0) & (chunks > 1.0), bubble, even)


declare(
    "balanced_bubble_time",
    (
        "num_micro_batches",
        "pp",
        "virtual_pipeline_size",
        "stage_forward_time",
        "stage_backward_time",
        "shorter_stages_time",
        "uneven_time",
        "order_holds",
        "first_stage_extra_time",
        "last_stage_extra_time",
        "output_time",
        "vocabulary_last_time",
        *(
            name
            for way in ("forward", "backward")
            for name in (
                f"dense_layer_{way}_time",
                f"moe_layer_{way}_time",
                "attention_beyond_forward_time" if way == "forward" else "attention_beyond_time",
            )
        ),
        *(f"{at}_{of}_excess" for at in ("first", "middle", "last") for of in ("moe", "attention")),
        "pipeline_layers",
        "embedding_layer_weight",
        "head_layer_weight",
        *NUMBERS,
    ),
    _own_chunks,
    "Bubble of interleaved 1F1B whose chunks have their own layers",
    name="own_chunks_bubble_time",
    source="narayanan2021",
    where="section 2.2.2; Megatron-LM's order of passes, run with the chunks' times",
    assumes=(
        WHOLE_GROUPS,
        SPLIT,
    ),
    when={**INTERLEAVED, **ORDERED, **UNEVEN},
)


# Micro-batches in flight: how many stages' worth of activations a stage holds at most.
#
# The first stage is ``stage = 0``, the last ``stage = pp - 1``; beyond there is none, and none in
# flight, so that stages can stand along an axis that is longer than some of the pipelines.

KEPT = ("activations are held until wgrad completes",)


@formula(returns="in_flight_micro_batches", source="huang2019", where="section 2.3", when=GPIPE)
def gpipe_in_flight(num_micro_batches, stage, pp):
    """Micro-batches in flight in GPipe: all."""
    return xp.where(stage < pp, num_micro_batches, 0.0)


@formula(
    returns="in_flight_micro_batches", source="narayanan2021", where="section 2.2.1", when=PLAIN
)
def one_f_one_b_in_flight(num_micro_batches, pp, stage):
    """Micro-batches in flight in 1F1B: those that the stages ahead have."""
    return xp.maximum(xp.minimum(num_micro_batches, pp - stage), 0.0)


@formula(
    returns="in_flight_micro_batches",
    source="korthikanti2022",
    where="section 4.2.3 (the first stage)",
    assumes=(WHOLE_GROUPS, "with one virtual stage it is plain 1F1B"),
    when=INTERLEAVED,
)
def interleaved_in_flight(num_micro_batches, virtual_pipeline_size, pp, stage):
    """Micro-batches in flight in interleaved 1F1B."""
    chunks = 2.0 * (pp - 1.0 - stage) + (virtual_pipeline_size - 1.0) * pp + 1.0
    ahead = xp.where(virtual_pipeline_size > 1.0, chunks / virtual_pipeline_size, pp - stage)
    return xp.where(stage < pp, xp.minimum(num_micro_batches, ahead), 0.0)


def _at_most(most: Callable[..., Array]) -> Callable[..., Array]:
    """Return what counts the micro-batches in flight where every stage has as many at most."""

    def kernel(num_micro_batches, stage, pp, *copies):
        return xp.where(stage < pp, xp.minimum(num_micro_batches, most(pp, *copies)), 0.0)

    return kernel


TABLE_2 = "section 2.3, table 2"
STEADY = "each rank keeps its steady order while the pipeline fills and drains"
PATTERN = "section 3.3 and appendix; the form by simulation"
BOTH_WAYS = "in DualPipe a device holds the weights of two stages"
# By schedule the most that a stage has, in whole stages' worth, of both directions or chunks.
for _name, _when, _most, _source, _where, _assumes in (
    (
        "zero_bubble_in_flight",
        {"schedule": "zero_bubble_h1|zero_bubble_v"},
        lambda pp: pp,
        "qi2023",
        f"{TABLE_2}; section 6, the form of ZB-V by simulation",
        (),
    ),
    ("zero_bubble_h2_in_flight", H2, lambda pp: 2.0 * pp - 1.0, "qi2023", TABLE_2, ()),
    (
        "dual_pipe_in_flight",
        PAIRS,
        lambda pp, copies: pp + 0.5 * copies,
        "deepseekv3",
        "section 3.2.1, table 2; DualPipeV: README, table of memory, 2*pp + 1 chunks",
        (BOTH_WAYS,),
    ),
    (
        "v_half_in_flight",
        {"schedule": "v_half"},
        lambda pp: xp.where(pp > 1.0, xp.floor(pp / 2.0) + 1.0, 1.0),
        "qi2024",
        PATTERN,
        (STEADY,),
    ),
    (
        "v_min_in_flight",
        {"schedule": "v_min"},
        lambda pp: xp.floor((pp + 4.0) / 3.0),
        "qi2024",
        PATTERN,
        (STEADY,),
    ),
):
    declare(
        "in_flight_micro_batches",
        ("num_micro_batches", "stage", "pp", *(("weight_copies",) if _when is PAIRS else ())),
        _at_most(_most),
        name=_name,
        source=_source,
        where=_where,
        assumes=(*KEPT, *_assumes),
        when=_when,
    )


@derived(
    returns="in_flight_micro_batches",
    assumes=("nothing is saved for a backward pass",),
    when=FORWARD,
)
def forward_only_in_flight(stage, pp):
    """In-flight micro-batches, forward-only: one."""
    return xp.where(stage < pp, 1.0, 0.0)


# Pipelines whose first and last stages take unequally long.
#
# In most models only the ends differ: the embedding in the first stage, logits and loss in the
# last, and fewer layers there to make up for them.  Zero-bubble schedules and DualPipe have no
# closed form then, so none is declared for them.

ENDS = ("only the first and the last stage differ from the others",)


@derived(
    returns="uneven_time",
    assumes=(*ENDS, "the slowest forward and the slowest backward are in one stage"),
    when={**FLOW, **UNEVEN},
)
def flow_imbalance_time(num_micro_batches, pp, first_stage_extra_time, last_stage_extra_time):
    """Pipeline time of uneven stages, GPipe and forward-only: the slowest stage in every pass."""
    both = first_stage_extra_time + last_stage_extra_time
    slower = xp.maximum(first_stage_extra_time, last_stage_extra_time)
    slowest = xp.where(pp > 2.0, xp.maximum(slower, 0.0), xp.where(pp > 1.0, slower, both))
    return (num_micro_batches - 1.0) * slowest + both


def _turns(num_micro_batches, pp, first, last, p2p_time, forward, backward):
    """Return what a way's first and last turn add: at the last stage, or before it.

    A turn before it takes forwards alone in a row, or backwards, of the first stage or of one
    between: the other passes and the transfers of as many micro-batches are missing.
    """
    share = forward / (forward + backward)
    row = xp.minimum(pp, num_micro_batches) - 1.0
    turns = []
    for own, missing in ((share, backward), (1.0 - share, forward)):
        less = missing + 2.0 * p2p_time
        gain = own * first - less
        at_first = xp.maximum(gain, row * gain)
        turns.append(xp.maximum(last, xp.maximum(at_first, xp.where(pp > 2.0, -less, gain))))
    return turns[0] + turns[1]


def _plain(num_micro_batches, pp, first, last, p2p_time, forward, backward):
    before = num_micro_batches - 1.0
    # Of ways down the stages and up again after the first, by the stages in them: the fewest.
    loops = xp.ceil(before / pp)
    at_last_loops = xp.ceil(before / xp.maximum(pp - 1.0, 1.0))
    at_first_loops = xp.ceil((before - 1.0) / xp.maximum(pp - 1.0, 1.0))
    between_loops = xp.maximum(xp.ceil((before - 1.0) / xp.maximum(pp - 2.0, 1.0)), loops)
    visits = 1.0 + loops - (pp * loops - before)
    transfers = 2.0 * p2p_time
    turns = _turns(num_micro_batches, pp, first, last, p2p_time, forward, backward)

    # Ways through plain 1F1B, by the stages at which they stay or turn: each way's time less that
    # of even stages.
    at_last = first + num_micro_batches * last - transfers * (before - loops)
    around_last = first + (1.0 + at_last_loops) * last - transfers * (at_last_loops - loops)
    around = (1.0 + xp.floor(before / pp)) * first + (1.0 + loops) * last
    around_more = (1.0 + loops) * first + turns + xp.maximum(visits - 2.0, 0.0) * last
    stays = num_micro_batches - pp
    at_first = (stays + 1.0) * first + turns - transfers * (stays - loops)
    around_first = (1.0 + at_first_loops) * first + turns - transfers * (at_first_loops - loops)
    between = first + turns - transfers * (between_loops - loops)

    again = xp.maximum(xp.maximum(at_first, around_first), around_more)
    longest = xp.maximum(xp.maximum(at_last, around), around_last)
    longest = xp.maximum(longest, xp.where(stays > 0.0, again, at_last))
    longest = xp.maximum(longest, xp.where((pp > 2.0) | (stays <= 0.0), between, at_last))
    longest = xp.where(num_micro_batches > 1.0, longest, first + last)
    return xp.where(pp > 1.0, longest, num_micro_batches * (first + last))


@derived(
    returns="uneven_time",
    assumes=(*ENDS, ASYNCHRONOUS, SPLIT),
    when={**PLAIN, **UNEVEN},
)
def one_f_one_b_imbalance_time(
    num_micro_batches,
    pp,
    first_stage_extra_time,
    last_stage_extra_time,
    p2p_time,
    stage_forward_time,
    stage_backward_time,
):
    """Pipeline time of uneven stages, 1F1B.

    Exact without transfers.  With such of up to 0.3 of a forward the pipeline's time is at most 1 %
    below the simulated one where ends differ by up to 0.3 of a stage.
    """
    ends = (first_stage_extra_time, last_stage_extra_time)
    passes = (stage_forward_time, stage_backward_time)
    return _plain(num_micro_batches, pp, *ends, p2p_time, *passes)


@derived(
    returns="uneven_time",
    assumes=(*ENDS, WHOLE_GROUPS, "extra work is in the first and in the last chunk"),
    when={**INTERLEAVED, **UNEVEN},
)
def interleaved_imbalance_time(
    num_micro_batches,
    pp,
    first_stage_extra_time,
    last_stage_extra_time,
    p2p_time,
    virtual_pipeline_size,
    stage_forward_time,
    stage_backward_time,
):
    """Pipeline time of uneven stages, interleaved 1F1B.

    Exact without transfers where the last stage has no less extra work than the first and neither
    less than others; else above the simulated pipeline's time, by at most 6 % where the ends are
    longer by up to 0.3 of a chunk, 15 % where one is as much shorter.
    """
    more = xp.maximum(first_stage_extra_time, last_stage_extra_time)
    less = xp.minimum(first_stage_extra_time, last_stage_extra_time)
    # Of two stages none is between the ends, at which micro-batches would wait.
    slowest = xp.where(pp > 2.0, xp.maximum(more, 0.0), more)
    several = num_micro_batches * slowest + pp * xp.maximum(less, 0.0)
    alone = num_micro_batches * (first_stage_extra_time + last_stage_extra_time)
    ends = (first_stage_extra_time, last_stage_extra_time)
    passes = (stage_forward_time, stage_backward_time)
    plain = _plain(num_micro_batches, pp, *ends, p2p_time, *passes)
    return xp.where(virtual_pipeline_size > 1.0, xp.where(pp > 1.0, several, alone), plain)
