"""A function a command, for notebooks: keyword arguments are the command line's options.

An option's name has underscores: ``--global-batch-size`` is ``global_batch_size``, any of its names
will do, and one that is a word of Python has an underscore at its end: ``from_``.  Values are
numbers in SI units or text as it is typed (``"50GB/s"``, ``"8:4096:x2"``), one or several.
Defaults are those of the command line, and so are refusals: each function raises an `InputError`
with every fault.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack

from sweeps.answers import Answer, Page, Plan
from sweeps.cli.ask import ask
from sweeps.pictures import Figures, figures_of

if TYPE_CHECKING:
    import xarray as xr

    from sweeps.options import (
        AnalysisOptions,
        BuyOptions,
        CalibrateOptions,
        CatalogOptions,
        CollectiveOptions,
        HopsOptions,
        NormalOptions,
        OverlapOptions,
        PageOptions,
        PlanOptions,
        TraceOptions,
        TuneOptions,
    )

File = str | os.PathLike[str]


def collective(**options: Unpack[CollectiveOptions]) -> Answer:
    """Cost of a collective operation on a network, as ``sweeps collective`` tells it.

    Parameters
    ----------
    **options
        At least ``gpus`` and ``message_size``; further ``op``, ``topology``, ``algorithm``,
        ``hardware``, ``inter_bandwidth``, ...

    Returns
    -------
    Answer
        Time with its band, steps, bytes, energy, bandwidths.

    Examples
    --------
    >>> import sweeps
    >>> found = sweeps.collective(gpus=16, message_size="1GiB", hardware="dgx-h100")
    >>> found.dataset.chosen_algorithm.attrs["long_name"]
    'algorithm'
    """
    return Answer(ask("collective", (), options))


def plan(**options: Unpack[PlanOptions]) -> Plan:
    """Search the best parallel plan for a model on a machine, as ``sweeps plan`` does.

    Parameters
    ----------
    **options
        What is asked: ``model``, ``hardware``, ``gpus``, ``global_batch_size``, ``seq_len``, ...;
        and what plans may have: ``tp``, ``pp``, ``recompute``, ...  Several values of what plans
        don't choose make a question at many points.

    Returns
    -------
    Plan
        The recommended plan with its reasons; ``dataset`` has a row a plan.

    Examples
    --------
    >>> import sweeps
    >>> found = sweeps.plan(model="llama3-8b", hardware="dgx-h100", gpus=8, global_batch_size=64,
    ...                     seq_len=4096)
    >>> int(found.recommended["tp"] * found.recommended["pp"] * found.recommended["dp"])
    8
    """
    return Plan(ask("plan", (), options))


def buy(**options: Unpack[BuyOptions]) -> Answer:
    """How many GPUs of each machine train a model in time, as ``sweeps buy`` tells it.

    Parameters
    ----------
    **options
        ``model``, ``tokens`` and ``days``; further ``hardware`` (several), ``price``, ``budget``,
        ...

    Returns
    -------
    Answer
        For each machine the least number of GPUs with its plan, days, cost and what binds.

    Examples
    --------
    >>> import sweeps
    >>> sweeps.buy(model="llama3-8b", tokens="1T", days=30, hardware="dgx-h100")  # doctest: +SKIP
    """
    return Answer(ask("buy", (), options))


def analysis(**options: Unpack[AnalysisOptions]) -> Answer:
    """Memory, communication and step time of a configuration, as ``sweeps analysis`` tells them.

    Parameters
    ----------
    **options
        ``model`` (or ``params`` and shapes), ``hardware``, ``gpus``, ``tp``, ``pp``, ...; several
        values make a table.

    Returns
    -------
    Answer
        The step time with its band and parts, memory, rates, energy, cost.

    Examples
    --------
    >>> import sweeps
    >>> found = sweeps.analysis(model="llama3-8b", gpus=8, tp=2, global_batch_size=8, seq_len=8192)
    >>> float(found.dataset.world_size)
    8.0
    """
    return Answer(ask("analysis", (), options))


def hops(**options: Unpack[HopsOptions]) -> Answer:
    """Latency and energy over typed hops, per strategy, as ``sweeps hops`` tells them.

    Parameters
    ----------
    **options
        Degrees, links by level and sizes; all have defaults.

    Returns
    -------
    Answer
        A row a strategy and a part.
    """
    return Answer(ask("hops", (), options))


def overlap(**options: Unpack[OverlapOptions]) -> Answer:
    """Overlap of computation and communication, as ``sweeps overlap`` tells it.

    Parameters
    ----------
    **options
        ``compute``, ``comm``, ``efficiency`` and ``kind`` with what it takes.

    Returns
    -------
    Answer
        Sequential, overlapped and ideal times, and speedups.

    Examples
    --------
    >>> import sweeps
    >>> found = sweeps.overlap(compute="50ms", comm="10ms", efficiency=0.8)
    >>> round(float(found.dataset.overlapped_time), 6)
    0.052
    """
    return Answer(ask("overlap", (), options))


def tune(**options: Unpack[TuneOptions]) -> Answer:
    """Tune the overlap of tensor-parallel communication with GEMMs, as ``sweeps tune`` does.

    Parameters
    ----------
    **options
        ``model``, ``max_tp_size``, ``output_dir``, ``from_traces``, ...

    Returns
    -------
    Answer
        The verdict, and a row a case.  Reports and configurations are in the output folder.
    """
    return Answer(ask("tune", (), options))


def calibrate(*logs: File, **options: Unpack[CalibrateOptions]) -> Answer:
    """Fit a library's constants to logs of nccl-tests, and judge them, as ``sweeps calibrate``.

    Parameters
    ----------
    *logs : str or Path
        Logs, tables or folders of them.
    **options
        ``hardware``, ``fabric``, ``write``, ...

    Returns
    -------
    Answer
        The verdict, and a row for each that was measured.
    """
    return Answer(ask("calibrate", logs, options))


def normal(what: str, **options: Unpack[NormalOptions]) -> Answer:
    """What is normal, of a collective's times or a run's MFU, as ``sweeps normal`` tells it.

    Parameters
    ----------
    what : str
        An operation, such as ``"all_reduce"``, or ``"mfu"``.
    **options
        ``gpus``, ``nodes``, ``hardware``, ``message_size``, ``model``, ...

    Returns
    -------
    Answer
        Bands of published curves or runs of the same class.
    """
    return Answer(ask("normal", (what,), options))


def trace(*files: File, **options: Unpack[TraceOptions]) -> Answer:
    """Say how GPUs spent their time, of profiler traces, as ``sweeps trace`` does.

    Parameters
    ----------
    *files : str or Path
        PyTorch profiler traces, one a rank, or their folder.
    **options
        ``mode``, ``patterns``, ``window``, ...

    Returns
    -------
    Answer
        What ran beside what, and how much communication was exposed.
    """
    return Answer(ask("trace", files, options))


def page(file: File | None = None, **options: Unpack[PageOptions]) -> Page:
    """Write one page to open, to touch and to pass on, as ``sweeps page`` does.

    Parameters
    ----------
    file : str or Path, optional
        A stored sweep; without one the page is a calculator of the plan that options state.
    **options
        ``output`` and ``overwrite``; ``at`` and ``quantity`` of a sweep; ``model``, ``hardware``,
        ``gpus``, ``tp``, ... of a calculator.

    Returns
    -------
    Page
        A notebook shows it; `Page.path` is the file.
    """
    at = options.get("at")
    held = [f"{name}={value}" for name, value in at.items()] if isinstance(at, Mapping) else at
    every: dict[str, Any] = {**options, "at": held}
    return Page(ask("page", (file,), every))


def catalog(*names: str, **options: Unpack[CatalogOptions]) -> Answer:
    """List machines, models, frameworks, presets and libraries; with names, what each has.

    Parameters
    ----------
    *names : str
        Names of the catalog, Hugging Face's, or a config.json.
    **options
        Folders of one's own files, and ``seq_length`` for a model's FLOPs.

    Returns
    -------
    Answer
        ``dataframe`` has a row a name.

    Examples
    --------
    >>> import sweeps
    >>> names = sweeps.catalog().dataframe
    >>> "dgx-h100" in names.name[names.kind == "machines"].tolist()
    True
    """
    return Answer(ask("catalog", names, options))


def plot(
    source: File | xr.Dataset,
    *figures: str,
    style: Literal["screen", "slide", "paper"] = "screen",
) -> Figures:
    """Draw the figures that a sweep declares, or those that suit it, as ``sweeps plot`` does.

    Parameters
    ----------
    source : str, Path or xarray.Dataset
        A stored sweep, or what `sweep`, `run` or an answer's ``dataset`` gives.
    *figures : str
        Names of some of them; all by default.
    style : {"screen", "slide", "paper"}
        What they are for.

    Returns
    -------
    Figures
        A notebook shows them; `Figures.save` writes them.

    Raises
    ------
    InputError
        If the file isn't one, a name is no figure's, or nothing suits the dataset.
    """
    from sweeps.store.netcdf import open_dataset

    if not isinstance(source, str | os.PathLike):
        return figures_of(lambda: source, wanted=figures, style=style)
    with open_dataset(Path(source), require_ours=False) as dataset:
        return figures_of(lambda: dataset, wanted=figures, style=style)


# Notebooks complete what a signature names: of the many options those of a short help.

_LINE = re.compile(r"^class (\w+)\((\w+)|^    (\w+): (.+)$", re.MULTILINE)
_RAISES = """

    Raises
    ------
    InputError
        With every fault, a line each."""
_BRIEF: Mapping[str, str] = {"Operation": "CommonOperation", "Step": "CommonStep"}


def _complete(*functions: Callable[..., Any]) -> None:
    """Give functions a signature that names their options, and say what they raise."""
    parents: dict[str, str] = {}
    fields: dict[str, dict[str, str]] = {}
    for name, parent, field, kind in _LINE.findall(_types()):
        if name:
            parents[name], fields[name] = parent, {}
        elif fields:
            fields[[*fields][-1]][field] = kind
    for function in functions:
        class_name = f"{function.__name__.capitalize()}Options"
        every = {**fields.get(_BRIEF.get(parents[class_name], ""), {}), **fields[class_name]}
        *first, others = signature(function).parameters.values()
        options = [
            Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=kind)
            for name, kind in every.items()
            if len(name) > 1
        ]
        made = Signature([*first, *options, others.replace(annotation="Values")])
        function.__signature__ = made  # type: ignore[attr-defined]
        text, line, examples = (function.__doc__ or "").rstrip().partition("\n\n    Examples\n")
        function.__doc__ = f"{text}{_RAISES}{line}{examples}\n"


def _types() -> str:
    return Path(__file__).with_name("options.pyi").read_text(encoding="utf-8")


_complete(
    collective, plan, buy, analysis, hops, overlap, tune, calibrate, normal, trace, page, catalog
)
