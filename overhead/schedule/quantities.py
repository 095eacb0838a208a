"""The vocabulary of pipelines: times of a stage, of the whole pipeline and its parts."""

from __future__ import annotations

from overhead.quantity import define
from overhead.source import cite

__all__: list[str] = []

# One micro-batch on one device: all of the device's virtual stages together.
define(
    "stage_forward_time",
    "t_f",
    "s",
    "time of a stage's forward of one micro-batch",
    minimum=0,
    above=True,
)
for _name, _symbol, _meaning in (
    (
        "stage_backward_time",
        "t_b",
        "time of a stage's whole backward of one micro-batch, what it recomputes included",
    ),
    (
        "stage_weight_time",
        r"t_{bw}",
        "part of a stage's backward that gives the weights' gradients",
    ),
    (
        "stage_overlapped_time",
        r"t_{fb}",
        "time of one micro-batch's forward and another's backward that overlap",
    ),
    ("p2p_time", r"t_\mathrm{p2p}", "time of one transfer between neighbouring stages"),
):
    define(_name, _symbol, "s", _meaning, minimum=0)
for _end, _mark in (("first", "0"), ("last", r"\ell")):
    # Negative where it holds fewer layers than the stages between: no domain.
    define(
        f"{_end}_stage_extra_time",
        f"x_{{{_mark}}}",
        "s",
        f"time of a micro-batch in the {_end} stage beyond that in a stage between",
    )
define("stage", "i", "1", "place of a stage in the pipeline, from 0", minimum=0, integer=True)

# The pipeline, from its first start to its last end.
define(
    "busy_time",
    r"T_\mathrm{busy}",
    "s",
    "time for which a device computes all micro-batches (ideal time of the pipeline)",
    minimum=0,
    above=True,
)
for _name, _mark, _meaning in (
    ("bubble_time", "bubble", "time for which a device waits for the pipeline to fill and drain"),
    ("exposed_p2p_time", "p2p", "time that transfers between stages add to the pipeline"),
):
    define(_name, rf"T_\mathrm{{{_mark}}}", "s", _meaning, minimum=0)
define(
    "imbalance_time",
    r"T_\mathrm{uneven}",
    "s",
    "time that the first and the last stage's extra work adds to the pipeline",
)
define("pipeline_time", "T_p", "s", "time of the pipeline", minimum=0, above=True)
define("bubble_fraction", r"\beta_p", "1", "bubble over the pipeline's whole time", minimum=0)
define("bubble_over_ideal", r"\beta_0", "1", "bubble over the pipeline's ideal time", minimum=0)
define(
    "in_flight_micro_batches",
    "a_i",
    "1",
    "most micro-batches whose activations a stage holds, in whole stages' worth",
    minimum=0,
)

# The schedules by name, the conditions under which their forms hold, and their sources.

cite(
    "huang2019",
    "Y. Huang et al., GPipe: efficient training of giant neural networks using pipeline "
    "parallelism, NeurIPS, 2019",
    "arXiv:1811.06965",
)
cite(
    "qi2023",
    "P. Qi, X. Wan, G. Huang and M. Lin, Zero bubble pipeline parallelism, 2023",
    "arXiv:2401.10241",
)
cite(
    "korthikanti2022",
    "V. Korthikanti et al., Reducing activation recomputation in large transformer models, 2022",
    "arXiv:2205.05198",
)

GPIPE = {"schedule": "gpipe"}
PLAIN = {"schedule": "one_f_one_b"}
BOTH = {"schedule": "gpipe|one_f_one_b"}
INTERLEAVED = {"schedule": "interleaved"}
H1 = {"schedule": "zero_bubble_h1"}
H2 = {"schedule": "zero_bubble_h2"}
# Each device updates its weights when it is done, and a check comes afterwards.
STAGGERED = {**H2, "optimizer": "staggered"}
DUAL = {"schedule": "dual_pipe"}
FORWARD = {"schedule": "forward_only"}
UNEVEN = {"stages": "uneven"}

EVEN = "all stages take equally long"
ASYNCHRONOUS = "a transfer occupies no device"
WHOLE_GROUPS = "the micro-batches are a multiple of the stages"
AT_LEAST_PP = "there are no fewer micro-batches than stages"
AT_LEAST_H2 = "there are no fewer micro-batches than 2*pp - 1"
AT_LEAST_DUAL = "there are no fewer micro-batches than 2*pp, and both are even"

# The part of a backward for which the stage before waits.
INPUT = "(stage_backward_time - stage_weight_time)"
