"""Speed of overlap: each mechanism's closed form over ten million cells."""

from collections.abc import Callable
from time import perf_counter

from overhead.overlap.mechanisms import MECHANISMS
from sweeps.cli.overlap_case import job_of
from sweeps.engine.program import Program

Ratio = Callable[[str, float, float, str], None]
# Cells a second that each form must reach, on one core.
WANTED = 1e7
# Axes of 10^7 cells together; whatever else a mechanism takes has its default.
DURATIONS = {"compute_time": "1ms:1s:log200", "communication_time": "1ms:1s:log200"}
FURTHER = {
    "pipeline": {
        "stage_forward_time": "1ms:1s:log200",
        "p2p_time": "1us:1ms:log200",
        "stage_backward_time": "1ms:1s:log250",
    },
    "fused_messages": {
        "compute_time": "1ms:1s:log200",
        "message_latency": "1us:1ms:log200",
        "transfer_time": "1ms:1s:log250",
        "messages": "8",
    },
    "two_durations": {**DURATIONS, "overlap_efficiency": "0:1:lin250"},
    "fsdp_backward": {**DURATIONS, "reduction_fraction": "0:1:lin250"},
    "zero3_prefetch": {**DURATIONS, "layer_elements": "1e6:1e9:log250"},
    "layer_by_layer": {**DURATIONS, "independent_compute_fraction": "0:1:lin250"},
    "reduce_scatter_ring": {**DURATIONS, "partial_sum_time": "1us:1ms:log250"},
    "reduce_scatter_pipeline": {**DURATIONS, "splits": "1:250:+1"},
    "ring_exchange": {**DURATIONS, "ranks": "2:251:+1"},
    "ring_exchange_aggregate": {**DURATIONS, "ranks": "2:500:+2"},
    "ddp_buckets": {**DURATIONS, "gradient_buckets": "1:250:+1"},
    "gradient_accumulation": {**DURATIONS, "num_micro_batches": "1:250:+1"},
    "fsdp_prefetch": {**DURATIONS, "layers": "1:250:+1"},
    "bulk_margin": {**DURATIONS, "sms": "100:349:+1"},
    "bulk_shared": {**DURATIONS, "sms": "100:349:+1"},
    "bulk_queued": {
        "compute_time": "1ms:1s:log3000",
        "communication_time": "1ms:1s:log3334",
    },
}


def cells_a_second(mechanism: str) -> float:
    """Return how many cells of a form are computed and masked in a second, by one core."""
    found = job_of({**FURTHER[mechanism], "mechanism": mechanism}).resolved
    plan = Program(found.axes, found.constants, found.labels, ("overlapped_time",))
    assert plan.grid.cells >= 1e7
    best = float("inf")
    for _ in range(3):
        start = perf_counter()
        for _ in plan.blocks():
            pass
        best = min(best, perf_counter() - start)
    return plan.grid.cells / best


def test_each_form(ratio: Ratio) -> None:
    assert set(FURTHER) == set(MECHANISMS)
    for mechanism in MECHANISMS:
        speed = cells_a_second(mechanism)
        ratio(f"overlap cells a second: {mechanism}", speed, WANTED, f"{speed / 1e6:.0f} M")
