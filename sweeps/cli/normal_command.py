"""``sweeps normal``: the band that is normal of a collective, or of MFU."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sweeps.cli.options import result_options

if TYPE_CHECKING:
    from sweeps.calibrate.normal import Normal

SIZES = "1KiB:8GiB:x2"
OF_COLLECTIVES, OF_MFU = ("ranks", "nodes", "sizes", "fabric"), ("model", "precision")


@click.command("normal")
@click.argument("what", metavar="OPERATION|mfu", default="")
@click.option("--hardware", metavar="NAME", help="The machine (default: dgx-h100), or its file.")
@click.option("--ranks", "--N", type=click.IntRange(2), help="All ranks (8).")
@click.option("--nodes", type=click.IntRange(1), help="Nodes (as few as hold the ranks).")
@click.option("--fabric", metavar="NAME", help="Network between nodes (the machine's).")
@click.option("--M", "--message-bytes", "sizes", metavar="SIZES", help=f"Sizes ({SIZES}).")
@click.option("--model", metavar="NAME", help="The model whose MFU it is (llama3-70b).")
@click.option("--precision", metavar="NAME", help="Of the runs: bf16 (default), fp8, ..")
@result_options
def command(what: str, **given: Any) -> int:
    """What is normal: of a collective's times by message size, or of a training run's MFU.

    Bands are of published curves and runs of the same class; 'sweeps calibrate' judges by them.
    """
    from sweeps.calibrate.normal import collective_lines, mfu_lines
    from sweeps.cli.write import Output
    from sweeps.errors import InputError, fault

    strange = OF_COLLECTIVES if what == "mfu" else OF_MFU
    for name in strange:
        if given[name] is not None:
            flag = "--M" if name == "sizes" else f"--{name}"
            raise InputError(fault(flag, given[name], f"doesn't apply to {what}", "leave it out"))
    out = Output(given, f"normal-{what}")
    out.check()
    found = _found(what, given)
    result = found.result(given)
    lines = mfu_lines(found) if what == "mfu" else collective_lines(found)
    out.deliver(result, lines, draw=lambda stem: _draw(found, stem))
    return 0


def _found(what: str, given: dict[str, Any]) -> Normal:
    from overhead.labels import LABELS
    from sweeps.calibrate.logs import known_operations, operation_of
    from sweeps.calibrate.normal import normal_collective, normal_mfu
    from sweeps.errors import InputError, fault
    from sweeps.spec.axis import label_values, numbers_of

    hardware = given["hardware"] or LABELS["hardware"].default
    if what == "mfu":
        precision = given["precision"] or LABELS["precision"].default
        if precision not in (known := label_values("precision")):
            raise InputError(fault("--precision", precision, "unknown", ", ".join(known)))
        return normal_mfu(given["model"] or "llama3-70b", hardware, precision)
    operation = operation_of(what)
    if not operation:
        allowed = f"mfu, or {known_operations(what)}"
        raise InputError(fault("OPERATION", what, "is not an operation", allowed))
    sizes = numbers_of("message_bytes", given["sizes"] or SIZES, "--M")
    if not (sizes > 0.0).all():
        raise InputError(fault("--M", given["sizes"], "no message size", "sizes above 0"))
    ranks, nodes = given["ranks"] or 8, given["nodes"] or 0
    return normal_collective(operation, ranks, nodes, hardware, given["fabric"] or "", sizes)


def _draw(found: Normal, stem: Path) -> list[Path]:
    from sweeps.plots.measured import draw_normal

    return draw_normal(found.rows, found.points, stem, title=found.title)
