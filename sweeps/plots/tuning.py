"""Bars of a tuning of TP overlap: what it saves, and what NVIDIA's settings lose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sweeps.plots.frame import Sheet
from sweeps.plots.save import save
from sweeps.plots.stacks import Stacks, draw_stacks
from sweeps.plots.style import style

if TYPE_CHECKING:
    from sweeps.tuner.report import TuningReport


def draw_tuning(report: TuningReport, stem: Path) -> list[Path]:
    """Draw what the overlap that was chosen leaves of each linear layer's time, and what it saves.

    Layers without a baseline aren't there: nothing says what overlap saves of them.
    """
    choices = [candidate for candidate in report.choices if candidate.passes]
    operators = [
        o for o in report.config.operators if any(o in candidate.passes for candidate in choices)
    ]
    if not operators:
        return []
    parts = np.full((len(choices), 2, len(operators)), np.nan)
    notes = [["" for _ in operators] for _ in choices]
    for k, choice in enumerate(choices):
        for j, operator in enumerate(operators):
            if operator in choice.passes:
                before, after = choice.baselines[operator].e2e, choice.e2e(operator)
                parts[k, :, j] = after, max(before - after, 0.0)
                notes[k][j] = f"{before / after:.2f}x"
    stacks = Stacks(
        [f"TP={candidate.tp_size}" for candidate in choices],
        operators,
        ["With the overlap that was chosen", "Saved by it"],
        parts,
        "s",
        quantity="time",
        colours=(0, 7),
        bar_notes=tuple(map(tuple, notes)),
    )
    config = report.config
    how = "predicted" if config.from_traces is None and config.command is None else "measured"
    sheet = Sheet(
        "Time saved by TP overlap, by linear layer",
        fixed=f"{config.model_name} · {config.max_token_len} tokens · {config.precision} · "
        f"{config.machine.name} · forward and backward, {how}",
        panels=stacks.panels,
    )
    with style():
        return save(draw_stacks(stacks, sheet), stem.with_name(f"{stem.name}-saved"))


_MOST_LAYERS = 12


def draw_presets(rows: Sequence[Mapping[str, Any]], stem: Path) -> list[Path]:
    """Draw the layers of NVIDIA's settings that lose most, the worst first."""
    worst = sorted(rows, key=lambda row: -row["loss"])[:_MOST_LAYERS]
    names, ways = [], []
    for row in worst:
        preset = row["preset"].removeprefix("userbuffers_").partition("_mbs")[0]
        names.append(f"{row['layer'].replace('_', ' ')} · {preset.replace('_', ' ')}")
        both = (
            row[f"{whose}_method"].replace("_exchange", "").replace("_", " ")
            for whose in ("their", "our")
        )
        ways.append("{}, ours {}".format(*both))
    parts = 100.0 * np.array([[[row["loss"] for row in worst]]])
    stacks = Stacks([""], names, ["loss"], parts, "%", quantity="loss", bar_notes=(tuple(ways),))
    sheet = Sheet(
        f"What do NVIDIA's settings lose of our best? {len(worst)} of {len(rows)} layers",
        fixed="the layers that lose most, predicted",
    )
    with style():
        return save(draw_stacks(stacks, sheet), stem.with_name(f"{stem.name}-loss"))
