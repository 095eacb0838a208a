"""Communication of a training step: every operation of every dimension, and what it adds up to.

`OPERATIONS` lists the operations, `DIMENSIONS` what they are for.  An operation's quantities begin
with its name (`PARTS`), a dimension's with the dimension's (`TOTALS`).  Times are those of the
group's collective where the plan places it, without any overlap; the model of a step decides what
of it hides.
"""

from overhead.communication import (
    context,
    data,
    deduplicated,
    expert,
    grid,
    groups,
    layerwise,
    operation,
    parameters,
    passes,
    pipeline,
    quantities,
    tensor,
    totals,
    vocabulary,
)
from overhead.communication.operation import DIMENSIONS, OPERATIONS, PARTS, Operation
from overhead.communication.quantities import DEFAULTS
from overhead.communication.totals import TOTALS

__all__ = [
    "DEFAULTS",
    "DIMENSIONS",
    "OPERATIONS",
    "PARTS",
    "TOTALS",
    "Operation",
    "context",
    "data",
    "deduplicated",
    "expert",
    "grid",
    "groups",
    "layerwise",
    "operation",
    "parameters",
    "passes",
    "pipeline",
    "quantities",
    "tensor",
    "totals",
    "vocabulary",
]
