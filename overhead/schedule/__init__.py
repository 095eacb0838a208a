"""Pipeline schedules: time, bubble, exposed transfers, micro-batches in flight, uneven ends.

A pipeline's time is the time for which its devices compute, its bubble, and what transfers add
that nothing hides.  Each form is compared with an event simulation of its schedule
(tests/simulator/pipeline.py); what isn't exact says by how much.
"""

from overhead.schedule import labels  # isort: skip  (the formulas cite what it declares)
from overhead.schedule import bubble, in_flight, transfers, uneven, whole
from overhead.schedule.labels import SCHEDULES
from overhead.schedule.uneven import uneven_one_f_one_b_time

__all__ = [
    "SCHEDULES",
    "bubble",
    "in_flight",
    "labels",
    "transfers",
    "uneven",
    "uneven_one_f_one_b_time",
    "whole",
]
