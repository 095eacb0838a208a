"""What quantities and labels are called beside their own names, by options and in Python.

The first name of each is the one that help and messages have; the others are understood wherever
it is.  An option has hyphens in place of underscores.
"""

from __future__ import annotations

from sweeps.former import FORMER
from sweeps.spec.files import read_rows, shipped

NAMES: dict[str, tuple[str, ...]] = {
    row["name"]: tuple(row["names"].split()) for row in read_rows(shipped("fields") / "names.csv")
}
# Nodes, times the GPUs of each: of a training step `world_size`, of one operation `ranks`.
NODES = "nodes"
# The number of GPUs, of a training step and of one operation.
GPUS = ("world_size", "ranks")

# By other name what it means; those of the number of GPUs depend on what is asked.
_OF_GPUS = {name for gpu in GPUS for name in NAMES[gpu]} - {*GPUS}
_MEANT = {
    name: present_name
    for present_name, names in NAMES.items()
    for name in names
    if present_name not in GPUS and name != present_name
}
_FORMER_OF: dict[str, list[str]] = {}
for _former, _present in FORMER.items():
    _FORMER_OF.setdefault(_present, []).append(_former)
OTHER_NAMES = (*sorted(_OF_GPUS), *_MEANT)


def quantity_of(name: str, *, training: bool) -> str:
    """Return the quantity or label that a name means, or the name where it is none of these."""
    if name in _OF_GPUS:
        return GPUS[0] if training else GPUS[1]
    meant = _MEANT.get(name, name)
    return FORMER.get(meant, meant)


def names_of(present_name: str) -> tuple[str, ...]:
    """Return the names that a quantity or label is given by, the one that is shown first."""
    names = NAMES.get(present_name, (present_name,))
    return (*names, *(name for name in _FORMER_OF.get(present_name, ()) if name not in names))
