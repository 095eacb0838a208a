from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeps.errors import MOST_FAULTS, InputError
from sweeps.validate import class_of, medians
from sweeps.validate.table import read_table
from tests.tables import examples

HEADINGS = "collective,hardware,ranks,message_bytes,time_us"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "own.csv"


def faults_of(path: Path, text: str | bytes, **more: dict[str, str]) -> tuple[str, ...]:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError) as caught:
        read_table(path, more.get("columns"), more.get("units"))
    return caught.value.faults


@pytest.mark.parametrize(("heading", "unit", "cell", "seconds"), examples(__file__, "times"))
def test_units_of_time(path: Path, heading: str, unit: str, cell: str, seconds: float) -> None:
    path.write_text(f"{heading},message_bytes\n{cell},1024\n")
    table = read_table(path, units={"time": unit} if unit else {})
    assert table.columns["time"].tolist() == [seconds]


@pytest.mark.parametrize(("heading", "cell"), examples(__file__, "units_of_size"))
def test_units_of_size(path: Path, heading: str, cell: str) -> None:
    path.write_text(f"{heading},time_us\n{cell},1\n")
    table = read_table(path, {"message_bytes": heading})
    assert table.columns["message_bytes"].tolist() == [65536.0]


def test_remarks_blank_lines_quotes_and_marks(path: Path) -> None:
    text = f'# a remark\r\n\r\n{HEADINGS},note\r\nall_reduce,dgx-h100,8,1024,10,"one,\ntwo"\r\n'
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    table = read_table(path)
    assert table.columns["collective"].tolist() == ["all_reduce"]
    assert "note" not in table.columns


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("", "is empty"),
        (HEADINGS + "\n", "has no rows"),
        (b"\xff\xfe\x00", "not UTF-8 text (byte 0)"),
        ("message_bytes,elapsed_us\n1,2\n", "no column 'time'"),
        ("message_bytes;time_us\n1;2\n", "one column"),
        ("message_bytes,time\n1,2\n", "its unit isn't known; end it with one, as in time_us"),
        ("message_bytes,time_us,time_us\n1,2,3\n", "heading = 'time_us': is given twice"),
        ("message_bytes,time_us,time_ms\n1,2,3\n", "heading = 'time_us, time_ms': are all time"),
        (f"{HEADINGS}\nall_reduce,dgx-h100,8,1024\n", "line 2: 4 cells; the headings are 5"),
        (f"{HEADINGS}\nall_reduce,dgx-h100,8,1024,fast\n", "line 2, time_us = 'fast': can't be"),
        (f"{HEADINGS}\nall_reduce,dgx-h100,8,1024,\n", "line 2, time_us = ''"),
        (f"{HEADINGS}\nall_reduce,dgx-h100,8,1024,nan\n", "time_us = 'nan': can't be read"),
        (f"{HEADINGS}\nall_reduce,dgx-h100,8,1024,inf\n", "time_us = 'inf': can't be read"),
        (f"{HEADINGS}\nall_reduce,dgx-h100,8,1024,0\n", "a time above 0"),
        (f"{HEADINGS}\nall_reduce,dgx-h100,8,1024,-3\n", "out of range"),
        (f"{HEADINGS}\nall_reduce,dgx-h100,8,-1,3\n", "message_bytes = '-1'"),
        (f"{HEADINGS}\nall_reduce,dgx-h100,1.5,1024,3\n", "a whole number, 1 or more"),
        (f"{HEADINGS}\nall_reduce,,8,1024,3\n", "line 2, hardware = '': empty"),
        (f"{HEADINGS}\nallreduce,dgx-h100,8,1024,3\n", "did you mean 'all_reduce'"),
    ],
)
def test_faults(path: Path, text: str | bytes, result: str) -> None:
    faults = faults_of(path, text)
    assert len(faults) == 1
    assert result in faults[0]
    assert "\n" not in faults[0]


def test_all_faults_at_once_but_not_endlessly(path: Path) -> None:
    faults = faults_of(path, f"{HEADINGS}\nx,dgx-h100,8,1,a\nall_reduce,dgx-h100,0,1,1\n")
    assert len(faults) == 3
    assert [text for text in faults if "line 3" in text]
    faults = faults_of(path, HEADINGS + "\n" + "all_reduce,dgx-h100,8,1,a\n" * 1000)
    assert len(faults) == MOST_FAULTS + 1
    assert faults[-1].endswith(f"{1000 - MOST_FAULTS} more faults")


def test_folder_in_place_of_a_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="directory"):
        read_table(tmp_path)


@pytest.mark.parametrize(
    ("size", "number"), [(0, 0), (2**18 - 1, 0), (2**18, 1), (2**24 - 1, 1), (2**24, 2), (2**40, 2)]
)
def test_classes_begin_where_they_say(size: float, number: int) -> None:
    assert class_of(np.array([float(size)])).tolist() == [number]


numbers = st.one_of(st.floats(-1e3, 1e3), st.just(np.nan))


@given(st.integers(0, 6).flatmap(lambda n: st.lists(st.lists(numbers, min_size=n, max_size=n))))
def test_medians_are_numpys(rows: list[list[float]]) -> None:
    width = len(rows[0]) if rows else 0
    values = np.array(rows, dtype=np.float64).reshape(len(rows), width)
    found, counts = medians(values)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        expected = np.nanmedian(values, axis=-1) if width else np.full(len(rows), np.nan)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    np.testing.assert_array_equal(counts, np.sum(~np.isnan(values), axis=-1))
