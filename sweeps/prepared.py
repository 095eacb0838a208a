"""A question that is asked again and again with other numbers, as an optimiser does."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from overhead.collectives.algorithm import ALGORITHMS
from overhead.formula import REGISTRY
from overhead.labels import LABELS
from overhead.quantity import VOCABULARY
from sweeps.engine.compiled import Compiled, Results
from sweeps.engine.grid import Array
from sweeps.engine.program import Program
from sweeps.errors import InputError, fault, nearest, refuse, tell_all
from sweeps.idle import SPLIT_BY, UNUSED, unused
from sweeps.job import Job, program_of
from sweeps.job import prepare as job_of
from sweeps.measured_step import CLOCK, MEASURED_STEP, is_to_be_fitted
from sweeps.spec.axis import Axis
from sweeps.spec.keywords import Stated, spec_of
from sweeps.spec.names import NODES, OTHER_NAMES, quantity_of
from sweeps.spec.resolve import resolve
from sweeps.spec.sweep import Sweep, read_sweep
from sweeps.spec.watched import unwatched, watched

if TYPE_CHECKING:
    import xarray as xr

# The axis of a call's numbers.
POINT = "point"
# Most answers to which keys are kept: of more, those that are asked again are found again.
MOST_KEYS = 1 << 14
# Most programs that are kept, each of some MiB.
MOST_PROGRAMS = 64
# What programs look at of numbers themselves, by the ends of their names: whether it is this one.
NOTED = {"ranks": 1.0, "latency": 0.0, "message_bytes": 0.0, "bandwidth": np.inf}


class Evaluated(Mapping[str, object]):
    """What a prepared question's answer is: numbers, or arrays, by quantity.

    Each quantity is an attribute, too.  What doesn't exist is NaN, and `reasons` says why.
    """

    __slots__ = ("_faults", "_values")

    def __init__(self, names: Sequence[str], values: Sequence[Any], faults: Sequence[str]) -> None:
        self._values = dict(zip(names, values, strict=True))
        self._faults = faults  # What can be wrong, in the order of the status' bits

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and name in self._values:
            return self._values[name]
        message = f"no quantity '{name}' was asked for"
        raise AttributeError(message)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._values]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self._values.items())
        return f"Evaluated({shown})"

    @property
    def reasons(self) -> Any:
        """Why values don't exist, in words: empty where they do; of arrays an array."""
        status = self._values["status"]
        if isinstance(status, int):
            return self._words(status)
        codes, inverse = np.unique(status, return_inverse=True)
        words = np.array([self._words(int(code)) for code in codes], dtype=object)
        return words[inverse.reshape(status.shape)]

    def _words(self, status: int) -> str:
        names = (name for bit, name in enumerate(self._faults) if status >> bit & 1)
        return "; ".join(name.replace("_", " ") for name in names)


class Prepared:
    """A question with some quantities left open: a function of these.

    `sweeps.prepare` makes it.  Any number of threads may call it, and it can be pickled.
    """

    def __init__(
        self, quantities: Sequence[str] | None, given: Mapping[str, object], folders: Sequence[Path]
    ) -> None:
        self.quantities, self.given, self.folders = quantities, dict(given), tuple(folders)
        self._lock = threading.RLock()
        self._asked: dict[tuple[str, ...], _Asked] = {}
        self._edition = _edition()
        table = spec_of(given)
        for name, values in table.get("axes", {}).items():
            refuse(name, values, "has several values", "one here; a call may have many")
        # What can be told before anything else is known: unknown names, and values.
        read_sweep(self._table({}), bare_is_si=True, folders=self.folders)

    def __reduce__(self) -> tuple[Any, ...]:
        return Prepared, (self.quantities, self.given, self.folders)

    def __repr__(self) -> str:
        asked = "the usual" if self.quantities is None else ", ".join(self.quantities)
        given = ", ".join(f"{name}={value!r}" for name, value in self.given.items())
        return f"<prepared: {asked}; {given}>"

    def __call__(self, **values: Any) -> Evaluated:
        """Return what was asked for, for values of the quantities that were left open.

        Parameters
        ----------
        **values
            Numbers in SI by quantity, or arrays, which broadcast as numpy's do.

        Returns
        -------
        Evaluated
            Numbers by quantity, or arrays; each is what `sweeps.sweep` gives of its point alone.

        Raises
        ------
        InputError
            With every fault, a line each.
        """
        names = tuple(values)
        if self._edition != _edition():
            with self._lock:
                self._asked, self._edition = {}, _edition()
        asked = self._asked.get(names)
        if asked is None:
            with self._lock:
                asked = self._asked.setdefault(names, _Asked(self, names))
        numbers = []
        for name, value in values.items():
            if type(value) is not float:
                if isinstance(value, int | np.integer | np.floating):
                    value = _number(name, value)  # noqa: PLW2901
                elif np.ndim(value):
                    return asked.arrays(values)
                else:
                    value = _number(name, value)  # noqa: PLW2901
            numbers.append(value)
        return asked.numbers(numbers)

    def dataset(self, **values: Any) -> xr.Dataset:
        """Return the sweep of all combinations of values, as `sweeps.sweep` does.

        Parameters
        ----------
        **values
            Values by quantity or label, as `sweeps.sweep` takes them.

        Returns
        -------
        xarray.Dataset
            Labelled, with units, sources and reasons.

        Raises
        ------
        InputError
            With every fault, a line each.
        """
        for name in sorted({*values} & {*self.given}):
            refuse(name, values[name], "is given twice", f"it was prepared as {self.given[name]}")
        table = spec_of({**self.given, **values})
        if self.quantities is not None:
            table["quantities"] = list(self.quantities)
        return job_of(table, command=["sweeps.prepare"], folders=self.folders).dataset()

    def _table(self, values: Mapping[str, float]) -> Stated:
        """Return what a spec file would state of one point."""
        table = spec_of(self.given)
        if self.quantities is not None:
            table["quantities"] = list(self.quantities)
        if values:
            # Whole numbers are told as they are typed.
            plain = {n: int(v) if float(v).is_integer() else v for n, v in values.items()}
            table["axes"] = {POINT: plain}
        return table


def _edition() -> tuple[int, int]:
    """Return of how many declarations the registries are: users may add their own."""
    return REGISTRY.edition, len(ALGORITHMS)


def _number(name: str, value: Any) -> float:
    if isinstance(value, str) or value is None:
        refuse(name, value, "is not a number", "a number in SI, or an array of them")
    try:
        return float(value)
    except OverflowError:
        refuse(name, value, "is too large for a 64-bit number", "a smaller one")
    except (TypeError, ValueError):
        refuse(name, value, "is not a number", "a number in SI, or an array of them")


Key = tuple[Any, ...]


class _Asked:
    """A prepared question with the names that some calls give.

    What isn't said is filled in once, for columns that note when they are looked at: of points at
    which what was looked at is the same, everything else is the same, too.  So their programs are
    found by these numbers, and those that agree in all that was filled in share one.
    """

    def __init__(self, prepared: Prepared, names: tuple[str, ...]) -> None:
        _check_names(names)
        self.prepared, self.names = prepared, names
        self._lock = threading.RLock()
        self._seen: set[str] = set()
        # Which places of numbers are looked at, and by these programs
        self._known: tuple[tuple[int, ...], dict[Key, Compiled]] = (), {}
        self._shared: dict[str, Compiled] = {}
        self._told = False
        self._noted = [
            (index, number)
            for index, name in enumerate(names)
            for end, number in NOTED.items()
            if name.endswith(end) or end in quantity_of(name, training=False)
        ]

    def numbers(self, numbers: list[float]) -> Evaluated:
        """Return the answer for one number each."""
        compiled = self._compiled(numbers)
        results = compiled.numbers(numbers)
        if results is None:
            self._read(numbers)  # which refuses what is out of its domain
            columns = [np.array((number,)) for number in numbers]
            results = tuple(array[0].item() for array in compiled.arrays(columns))
        return _evaluated(compiled, results)

    def arrays(self, values: Mapping[str, object]) -> Evaluated:
        """Return the answer for arrays that broadcast."""
        columns = {name: _column(name, value) for name, value in values.items()}
        try:
            shape = np.broadcast_shapes(*(column.shape for column in columns.values()))
        except ValueError:
            shapes = ", ".join(f"{name} has {array.shape}" for name, array in columns.items())
            refuse("shapes", shapes, "don't broadcast", "one shape, or what numpy broadcasts")
        flat = [np.broadcast_to(array, shape).reshape(-1) for array in columns.values()]
        if not flat[0].size:
            refuse("shapes", str(shape), "hold no value", "one value at least")
        self._check(flat)
        answers: list[Array] = []
        for compiled, rows in self._parts(flat):
            results = compiled.arrays([array[rows] for array in flat])
            if not answers:
                answers = [np.empty(flat[0].size, array.dtype) for array in results]
            for into, computed in zip(answers, results, strict=True):
                into[rows] = computed
        return _evaluated(compiled, [answer.reshape(shape) for answer in answers])

    def _parts(self, columns: Sequence[Array]) -> Iterator[tuple[Compiled, Any]]:
        """Yield programs, and the points at which each holds."""
        left = np.arange(columns[0].size)
        while left.size:
            first = [float(column[left[0]]) for column in columns]
            compiled = self._compiled(first)
            seen, _ = self._known
            same = np.ones(left.size, np.bool_)
            for index in seen:
                same &= columns[index][left] == first[index]
            for index, number in self._noted:
                same &= (columns[index][left] == number) == (first[index] == number)
            yield compiled, left[same]
            left = left[~same]

    def _check(self, columns: Sequence[Array]) -> None:
        """Refuse what is out of a quantity's domain, by the point where it is."""
        sample = [float(array[0]) for array in columns]
        quantities = self._compiled(sample).names
        for name, column in zip(quantities, columns, strict=True):
            wrong = VOCABULARY[name].outside(column) | ~np.isfinite(column)
            for point in np.flatnonzero(wrong)[:1]:
                self._read([float(array[point]) for array in columns])

    def _compiled(self, numbers: Sequence[float]) -> Compiled:
        """Return the program of a point."""
        seen, programs = self._known
        key = self._key(seen, numbers)
        compiled = programs.get(key)
        return self._compile(numbers) if compiled is None else compiled

    def _key(self, seen: Sequence[int], numbers: Sequence[float]) -> Key:
        if not (seen or self._noted):
            return ()
        noted = (numbers[index] == number for index, number in self._noted)
        return (*(numbers[index] for index in seen), *noted)

    def _compile(self, numbers: Sequence[float]) -> Compiled:
        """Find, or make, the program of a point."""
        with self._lock:
            sweep = self._read(numbers)
            if is_to_be_fitted(sweep):
                wrong = "fits the clock of a machine to one configuration"
                refuse(MEASURED_STEP, sweep.constants[MEASURED_STEP], wrong, f"{CLOCK}, beside it")
            axes = tuple(
                watched(axis, self._seen) if axis.name == POINT else axis for axis in sweep.axes
            )
            resolved = resolve(replace(sweep, axes=axes), self.prepared.folders)
            plain, passed = unwatched(resolved.axes)
            resolved = replace(resolved, axes=plain)
            names = tuple(name for axis in sweep.axes for name in axis.columns)
            seen, programs = self._known
            if {names[index] for index in seen} != self._seen or len(programs) >= MOST_KEYS:
                # A point at which less was looked at is found again.
                seen = tuple(p for p, name in enumerate(names) if name in self._seen)
                programs = {}
                self._known = seen, programs
            noted = [numbers[index] == number for index, number in self._noted]
            alike = _told(resolved, passed, noted)
            if alike not in self._shared:
                if len(self._shared) >= MOST_PROGRAMS:
                    self._shared.clear()
                    programs.clear()
                asked, program = program_of(sweep, resolved)
                self._warn(Job(asked, resolved, program, "", ["sweeps.prepare"]))
                wanted = _wanted(asked, program)
                self._shared[alike] = Compiled(program, names, passed, wanted)
            compiled = programs[self._key(seen, numbers)] = self._shared[alike]
            return compiled

    def _read(self, numbers: Sequence[float]) -> Sweep:
        """Return the sweep of a point, or refuse what is wrong with it."""
        table = self.prepared._table(dict(zip(self.names, numbers, strict=True)))
        try:
            sweep = read_sweep(table, bare_is_si=True, folders=self.prepared.folders)
        except InputError as error:
            # Without a column that can be read the axis of a point has none.
            lines = [line for line in error.faults if not line.startswith(f"axes.{POINT} ")]
            raise InputError(lines or error.faults) from None
        if sweep.joint:
            refuse(
                "message_bytes",
                "..",
                "is of an operation, beside a training step",
                "a question of its own",
            )
        return sweep

    def _warn(self, job: Job) -> None:
        """Tell once what was given and changes nothing, whatever the numbers."""
        given = {quantity_of(name, training=job.program.training) for name in self.names}
        idle = [name for name in unused(job) if SPLIT_BY.get(name) not in given]
        if idle and not self._told:
            self._told = True
            warnings.warn(f"{UNUSED}: {', '.join(idle)}", stacklevel=6)


def _check_names(names: Sequence[str]) -> None:
    """Refuse names that no call can give."""
    faults = []
    for name in names:
        meant = quantity_of(name, training=False)
        if meant in LABELS:
            wrong = "is a label, which decides what is computed"
            faults.append(fault(name, "..", wrong, "give it to sweeps.prepare"))
        elif meant == NODES:
            faults.append(fault(name, "..", "are not GPUs, which a call counts", "give gpus"))
        elif meant not in VOCABULARY:
            known = [entry for entry in (*VOCABULARY, *OTHER_NAMES) if entry not in LABELS]
            faults.append(fault(name, "..", "no such quantity", nearest(name, known)))
    tell_all(faults)


def _column(name: str, value: Any) -> Array:
    try:
        array = np.asarray(value)
        if array.dtype.kind not in "biuf":
            raise TypeError
        return array.astype(np.float64)
    except (TypeError, ValueError):
        shown = np.ravel(np.asarray(value, dtype=object))[0]
        refuse(name, shown, "is not a number", "a number in SI, or an array of them")


def _wanted(sweep: Sweep, program: Program) -> list[str]:
    """Return what is asked for: what is computed, and what is given."""
    known = {*program.wanted, *program.grid.columns}
    return [name for name in dict.fromkeys(sweep.quantities) if name in known]


def _told(resolved: Any, passed: Mapping[str, str], noted: Sequence[bool]) -> str:
    """Return as text all that was filled in, but for the columns that were passed on."""
    axes: Sequence[Axis] = resolved.axes
    columns = {
        name: values.tolist()
        for axis in axes
        for name, values in axis.columns.items()
        if name not in passed
    }
    fields = {name: (dims, values.tolist()) for name, (dims, values) in resolved.fields.items()}
    every = (columns, fields, resolved.constants, resolved.labels, resolved.implied, passed, noted)
    return repr(every)


def _evaluated(compiled: Compiled, values: Results | Sequence[Any]) -> Evaluated:
    return Evaluated(compiled.asked, values, tuple(compiled.program.faults.texts))
