"""What screens say of recipe presets: what one set, and what one would narrow a band to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from overhead.evaluation import Evaluation
from overhead.shipped import error_bands
from sweeps.bands import band_words
from sweeps.cli.sections import wrapped
from sweeps.job import Job
from sweeps.origin import Origin
from sweeps.spec.catalog import presets_of
from sweeps.spec.preset import Preset, Rule

PRESET, FRAMEWORK, RECOMPUTE = "preset", "framework", "recompute"
# What a preset brings of the settings that a band asks for.
BROUGHT = (PRESET, FRAMEWORK, RECOMPUTE)
BARE = "experts_bare"


def from_preset(origins: Sequence[Origin]) -> str:
    """Return of which preset a value is, with its release; empty where of none."""
    sources = (origin.source for origin in origins)
    source = next((text for text in sources if text.startswith(f"{PRESET} ")), "")
    return source.partition(";")[0].removeprefix(f"{PRESET} ").replace(": ", " (", 1)


def preset_lines(job: Job, taken: Mapping[str, str]) -> Iterator[str]:
    """Yield what each preset set, in a line; `taken` has the values that weren't given, as text."""
    told: dict[str, list[str]] = {}
    for name, origins in job.resolved.origins.items():
        if (preset := from_preset(origins)) and name in taken:
            told.setdefault(preset, []).extend(_said(name, taken[name]))
    for preset, values in told.items():
        yield from wrapped(f"Preset {preset}): {'; '.join(values)}")


def _said(name: str, value: str) -> Iterator[str]:
    """Yield what a preset set, in words: options by their names, modules that are recomputed."""
    if name == FRAMEWORK:
        _, *options = value.split("+")
        yield from ([", ".join(options)] if options else [])
    elif name.startswith(f"{RECOMPUTE}_"):
        yield from ([f"{name} = on"] if value == "1" else [])
    elif value != "selective":
        yield f"{name} = {value}"


def narrower(evaluation: Evaluation, framework: str, given: Iterable[str]) -> Iterator[str]:
    """Yield what naming a preset would narrow a step's band to, where it would.

    Parameters
    ----------
    evaluation : Evaluation
        The step's.
    framework : str
        What trains, as it was resolved.
    given : iterable of str
        The quantities and labels that are given.
    """
    # Late: an operation by itself has no formulas of steps.
    from overhead.step.bands import class_of_step
    from sweeps.spec.known import unknown_settings

    if evaluation.value("error_band_low", {}) is None:
        return
    names = [*presets_of(framework.partition("+")[0])]
    if class_of_step(evaluation.__getitem__) != BARE or not names:
        return
    unknown = unknown_settings({*given, *BROUGHT})
    told = {"given_options": 1.0, "unknown_settings": float(len(unknown))}
    other = Evaluation({**evaluation.given, **told}, evaluation.labels)
    named = error_bands()["step_time"][class_of_step(other.__getitem__)]
    band = band_words(named["low"], named["high"])
    yield from wrapped(f"({band} with a release's preset, as --preset {names[-1]})", indent="  ")


# Rules of a preset that are shown where no more is asked for.
FEW = 12


def preset_text(preset: Preset, *, whole: bool) -> Iterator[str]:
    """Yield what a preset sets, a line a rule; the later ones win."""
    yield f"{preset.name}  {preset.release}"
    if whole:
        yield from wrapped(preset.source, indent="  ")
    rules = [rule for rule in preset.rules if _sets(rule)]
    for rule in rules if whole else rules[:FEW]:
        yield from wrapped(f"{_where(rule)}: {'; '.join(_sets(rule))}", indent="  ")
    if (more := len(rules) - FEW) > 0 and not whole:
        yield f"  .. {more} more rules: later ones win"


def _where(rule: Rule) -> str:
    """Return where a rule holds."""
    words = {"model": "", "experts": "", "hardware": "on ", "precision": "in "}
    said = [
        "experts" if name == "experts" else f"{before}{', '.join(rule.when[name])}"
        for name, before in words.items()
        if name in rule.when
    ]
    return " ".join(said) or "always"


def _sets(rule: Rule) -> list[str]:
    """Return what a rule sets, in words."""
    parts = [", ".join(rule.options)] if rule.options else []
    parts += [f"no {', '.join(rule.without)}"] if rule.without else []
    parts += [f"{name} = {value}" for name, value in rule.labels.items()]
    parts += [f"{name} = {value:g}" for name, value in rule.numbers.items()]
    if rule.recompute is not None:
        again = rule.recompute if isinstance(rule.recompute, str) else ", ".join(rule.recompute)
        parts.append(f"{RECOMPUTE} {again or 'none'}")
    return parts
