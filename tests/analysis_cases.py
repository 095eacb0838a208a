"""Configurations that several tests of ``sweeps analysis`` look at."""

from __future__ import annotations

import shlex
from typing import Any

from sweeps.cli.analysis_command import analysis_of_options, command
from sweeps.cli.analysis_job import analysis_job
from sweeps.job import Job
from tests.cli_runner import Runner

__all__ = ["LLAMA", "SIZES", "job_of", "record"]

SIZES = "--params 70e9 --seq-length 1024 --hidden-size 4096"
LLAMA = (
    "--model llama3-70b --num-gpus 512 --tp 8 --pp 4 --sp --zero-stage 1 --global-batch 512"
    " --seq-length 8192"
)


def record(cli: Runner, line: str) -> dict[str, Any]:
    """Return what the command tells a program of one configuration."""
    (found,) = cli(f"analysis {line} --json").records
    return dict(found)


def job_of(line: str) -> Job:
    """Return the sweep that the command's arguments state."""
    with command.make_context("analysis", shlex.split(line)) as context:
        return analysis_job(analysis_of_options(context.params)[0])
