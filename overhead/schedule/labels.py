"""The schedules by name, the conditions under which their forms hold, and their sources."""

from __future__ import annotations

from overhead import plan_quantities, schedule_quantities
from overhead.source import cite
from overhead.transformer import sources

__all__ = ["SCHEDULES", "plan_quantities", "schedule_quantities", "sources"]

SCHEDULES = (
    "gpipe",
    "one_f_one_b",
    "interleaved",
    "zero_bubble_h1",
    "zero_bubble_h2",
    "dual_pipe",
    "forward_only",
)

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
# What is left of the bubble where weights fill it.
H2_TAIL = "(stage_forward_time + stage_backward_time - 3*stage_weight_time)"
