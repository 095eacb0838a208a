"""What is usual, by number, for tests that state a configuration by hand."""

from __future__ import annotations

from overhead.shipped import usual_table
from tests.tables import keyed


def usual(*takers: str) -> dict[str, float]:
    """Return the values of some tables of specs/training/usual.csv."""
    tables = usual_table()
    return {name: taken.value for taker in takers for name, taken in tables[taker].items()}


# What a step takes, with nothing hidden and no time of the host.
STEP = {
    **usual("machine", "framework", "step"),
    **keyed(
        "host_launch_time=0.0 step_overhead=0.0 cp_overlap=0.0 dp_overlap=0.0 loss_bytes=32.0 "
        "idle_power_fraction=0.15 unknown_settings=0.0 given_options=1.0 uncalibrated_device=0.0 "
        "device_kind=0.0 software_kind=0.0"
    ),
}
