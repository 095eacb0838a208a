"""What a notebook shows of an answer: text, and figures in memory, written where wanted."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from sweeps.errors import InputError, fault, nearest, refuse, tell_all

if TYPE_CHECKING:
    import xarray as xr

Declared = Sequence[Mapping[str, object]] | Callable[[Any], Any] | None


LINES = 20  # of an answer where a prompt shows it


def shortened(text: str, ways: str) -> str:
    """Return the first lines of an answer, and what there is beside them."""
    lines = text.splitlines()
    kept = lines if len(lines) < LINES else lines[: LINES - 1]
    left = len(lines) - len(kept)
    more = f"{left} more line{'s' * (left > 1)}: print" if left else ""
    last = "; ".join(filter(None, [more, ways]))
    return "\n".join([*kept, *([last] if last else [])])


class Text(str):
    """Lines of text, which a notebook shows as they are."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class Figures:
    """Figures that are drawn: a notebook shows them, `save` writes them.

    Parameters
    ----------
    files : mapping of str to bytes
        What is in each file that a figure comes in, by its name.
    """

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self.files = dict(files)

    @property
    def names(self) -> tuple[str, ...]:
        """The figures' names."""
        return tuple(dict.fromkeys(Path(name).stem for name in self.files))

    def __iter__(self) -> Iterator[str]:
        """Yield the figures' names."""
        return iter(self.names)

    def __len__(self) -> int:
        """Return how many figures there are."""
        return len(self.names)

    def __repr__(self) -> str:
        forms = dict.fromkeys(Path(name).suffix.removeprefix(".") for name in self.files)
        return f"Figures ({', '.join(forms)}): {', '.join(self.names)}"

    def _repr_png_(self) -> bytes | None:
        """Return the one figure as a notebook shows it."""
        pictures = [data for name, data in self.files.items() if name.endswith(".png")]
        return pictures[0] if len(pictures) == 1 else None

    def _repr_html_(self) -> str | None:
        """Return several figures as a notebook shows them."""
        pictures = [data for name, data in self.files.items() if name.endswith(".png")]
        if len(pictures) < 2:
            return None
        texts = (b64encode(data).decode() for data in pictures)
        return "".join(f'<img src="data:image/png;base64,{text}" width="640">' for text in texts)

    def save(self, folder: str | Path = ".", *, overwrite: bool = False) -> list[Path]:
        """Write the files into a folder.

        Parameters
        ----------
        folder : str or Path
            The folder, which is made where it isn't there.
        overwrite : bool
            Whether files that are there may be replaced.

        Returns
        -------
        list of Path
            The files.

        Raises
        ------
        InputError
            If one is there already, and may not be replaced.
        """
        from sweeps.store.publish import write_whole

        paths = [Path(folder) / name for name in self.files]
        there = [str(path) for path in paths if path.exists()]
        if there and not overwrite:
            refuse("folder", str(folder), f"{', '.join(there)} exist there", "overwrite=True")
        Path(folder).mkdir(parents=True, exist_ok=True)
        for path, data in zip(paths, self.files.values(), strict=True):
            write_whole(path, data)
        return paths


def figures_of(
    dataset: Callable[[], xr.Dataset],
    declared: Declared = None,
    draw: Callable[[Path], Iterable[Path]] | None = None,
    *,
    wanted: Sequence[str] = (),
    style: str = "screen",
) -> Figures:
    """Draw figures: what `draw` does, or those declared, or those that suit a dataset.

    Raises
    ------
    InputError
        If a name is no figure's, the style is none, or no figure suits the dataset.
    """
    from sweeps.cli.files import draw_figures
    from sweeps.plots.style import using

    with TemporaryDirectory() as folder, using(style):
        stem = Path(folder) / "figure"
        if draw is not None:
            paths = _chosen([*draw(stem)], wanted)
        else:
            notes = StringIO()
            draw_figures(stem, declared, wanted, notes, dataset())
            paths = sorted(Path(folder).iterdir())
            if not paths:
                raise InputError([notes.getvalue().strip()])
        return Figures({_named(path): path.read_bytes() for path in paths})


def _chosen(paths: Sequence[Path], wanted: Sequence[str]) -> Sequence[Path]:
    """Return the files of figures that are wanted, or all."""
    known = {Path(_named(path)).stem for path in paths}
    faults = [
        fault("--figure", name, "is unknown", nearest(name, known))
        for name in wanted
        if name not in known
    ]
    tell_all(faults)
    return [path for path in paths if not wanted or Path(_named(path)).stem in wanted]


def _named(path: Path) -> str:
    """Return a figure's file by what it shows."""
    return path.name.removeprefix("figure-")
