"""Every framework in whose words a plan can be said."""

from __future__ import annotations

from sweeps.launch import deepspeed, megatron, torchtitan
from sweeps.launch.settings import FrameworkSettings, LaunchFile
from sweeps.launch.terms import terms_of
from sweeps.search.request import Execution

FRAMEWORKS = (megatron, deepspeed, torchtitan)


def schedules_of(framework: str) -> tuple[str, ...]:
    """Return the pipeline schedules that a framework can run; of others none are known."""
    known = {
        "megatron-lm": megatron.SCHEDULES,
        "deepspeed": deepspeed.SCHEDULES,
        "torchtitan": tuple(terms_of("torchtitan")["schedules"]),
    }
    return known.get(framework, ())


def settings_of(plan: Execution) -> tuple[FrameworkSettings, ...]:
    """Return a plan's settings in every framework."""
    return tuple(framework.settings(plan) for framework in FRAMEWORKS)


def launch_files(plan: Execution, heading: tuple[str, ...]) -> tuple[LaunchFile, ...]:
    """Return the files with which every framework runs a plan; a heading tells what it is."""
    return tuple(framework.launch_file(plan, heading) for framework in FRAMEWORKS)
