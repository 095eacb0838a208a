"""Axes from text: exact ends, increasing values, and every fault at once."""

import random

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sweeps.errors import InputError
from sweeps.spec import axis as ranges
from sweeps.spec.axis import parse_values
from tests.tables import examples


def values(text: object, unit: str = "1", **options: bool) -> list[float]:
    given_options = {"bare_is_si": True, **options}
    return [float(v) for v in parse_values(text, unit, field="axis", **given_options)]


def faults(text: object, unit: str = "1", **options: bool) -> tuple[str, ...]:
    with pytest.raises(InputError) as error:
        values(text, unit, **options)
    return error.value.faults


@pytest.mark.parametrize(
    ("text", "unit", "expected"),
    [
        ("8", "1", [8]),
        (8, "1", [8]),
        ("32,8, 16", "1", [8, 16, 32]),
        ([32, "8", 16.0], "1", [8, 16, 32]),
        (np.array([2, 1]), "1", [1, 2]),
        ("2:64:x2", "1", [2, 4, 8, 16, 32, 64]),
        ("2:63:x2", "1", [2, 4, 8, 16, 32]),
        ("1:1000:x10", "1", [1, 10, 100, 1000]),
        ("0.001:1:x10", "1", [0.001, 0.01, 0.1, 1]),
        ("8:8:x2", "1", [8]),
        ("0:1:+0.1", "1", [0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1]),
        ("0:0.35:+0.1", "1", [0, 0.1, 0.2, 0.3]),
        ("0:0.3:+0.1", "1", [0, 0.1, 0.2, 0.3]),
        ("0:1:+0.3333333334", "1", [0, 0.3333333334, 0.6666666668]),
        ("1.000000001:3:x3", "1", [1.000000001]),
        ("1e6:1000000.00000001:+1e-8", "1", [1e6, 1000000.00000001]),
        ("0:1:lin11", "1", [0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1]),
        ("-1:1:lin3", "1", [-1, 0, 1]),
        ("1:1000:log4", "1", [1, 10, 100, 1000]),
        ("1KiB:1MiB:log11", "byte", [2.0**n for n in range(10, 21)]),
        ("1KiB:4KiB:x2, 1MiB", "byte", [1024, 2048, 4096, 1048576]),
        (["1KiB:4KiB:x2", "1MiB,2MiB"], "byte", [1024, 2048, 4096, 1048576, 2097152]),
        ("1us:3us:+1us", "s", [1e-6, 2e-6, 3e-6]),
        ("0, 5us", "s", [0, 5e-6]),
        ("100Gbit/s:400Gbit/s:x2", "byte s-1", [12.5e9, 25e9, 50e9]),
    ],
)
def test_values(text: object, unit: str, expected: list[float]) -> None:
    assert values(text, unit) == expected


def test_a_range_over_whole_numbers_gives_the_nearest_ones_once() -> None:
    assert values("1:8:log8", integer=True) == [1, 2, 3, 4, 6, 8]
    assert values("2:20:x1.5", integer=True) == [2, 3, 4, 7, 10, 15]
    assert values("1:10:lin4", integer=True) == [1, 4, 7, 10]
    assert "is not whole" in faults("1.5,2", integer=True)[0]
    assert "is not whole" in faults("1:2:+0.5", integer=True)[0]


@pytest.mark.parametrize(
    ("text", "unit", "said"), [*examples(__file__, "faults"), (None, "1", "is not a number")]
)
def test_faults(text: object, unit: str, said: str) -> None:
    lines = faults(text, unit)
    assert any(said in line for line in lines)
    assert all(line.startswith("axis = ") for line in lines)


def test_every_fault_is_told_at_once() -> None:
    assert len(faults("one,2,three,4:x,1:5:x0")) == 4
    assert len(faults("a:b:xc")) == 3


def test_numbers_beside_units_are_a_slip() -> None:
    lines = faults("64,128,256MiB", "byte")
    assert [line.split(":")[0] for line in lines] == ["axis = '64'", "axis = '128'"]
    assert "give it one, as '256MiB' has" in lines[0]
    assert len(faults("1:8GiB:log9", "byte")) == 1
    assert values("64,128", "byte") == [64, 128]


def test_a_file_wants_units_everywhere() -> None:
    assert len(faults([1024, "2:4:x2", "1MiB"], "byte", bare_is_si=False)) == 3
    assert values([1024], "1", bare_is_si=False) == [1024]


def test_infinite_where_allowed() -> None:
    assert values("10GB/s,inf", "byte s-1", allow_infinite=True) == [1e10, np.inf]


def test_together_they_are_too_many() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranges, "LARGEST_AXIS", 1000)
        assert len(values("1:600:+1,1001:1400:+1")) == 1000
        assert "is 1,001 values; 1,000 at most" in faults("1:600:+1,1001:1401:+1")[0]


ends = st.tuples(st.floats(1e-9, 1e12), st.floats(1e-9, 1e12)).map(sorted)


@given(ends, st.integers(2, 300), st.sampled_from(["log", "lin"]))
def test_points_have_exact_ends_and_increase(pair: list[float], count: int, kind: str) -> None:
    first, last = pair
    assume(last > first * (1 + 1e-9))
    actual = parse_values(f"{first!r}:{last!r}:{kind}{count}", "1", field="axis", bare_is_si=True)
    assert actual.dtype == np.float64
    assert (actual[0], actual[-1], actual.size) == (first, last, count)
    assert (np.diff(actual) > 0).all()
    steps = np.diff(np.log(actual)) if kind == "log" else np.diff(actual)
    np.testing.assert_allclose(steps, steps.mean(), rtol=1e-3)


@given(ends, st.floats(1.01, 10))
def test_factors_stop_at_the_end(pair: list[float], factor: float) -> None:
    first, last = pair
    actual = parse_values(f"{first!r}:{last!r}:x{factor!r}", "1", field="axis", bare_is_si=True)
    assert actual[0] == first
    assert actual[-1] <= last < actual[-1] * factor * (1 + 1e-9)
    np.testing.assert_allclose(actual[1:] / actual[:-1], factor, rtol=1e-9)


@given(st.integers(-(10**6), 10**6), st.integers(0, 500), st.integers(1, 10**5), st.integers(0, 6))
def test_steps_are_the_decimals_that_a_person_would_type(
    start: int, count: int, step: int, places: int
) -> None:
    def typed(number: int) -> str:
        return f"{number}e-{places}"

    text = f"{typed(start)}:{typed(start + count * step)}:+{typed(step)}"
    assert values(text) == [float(typed(start + n * step)) for n in range(count + 1)]


@given(st.sets(st.integers(1, 10**6), min_size=1, max_size=30))
def test_order_and_form_do_not_matter(numbers: set[int]) -> None:
    shuffled = list(numbers)
    random.Random(0).shuffle(shuffled)
    expected = sorted(float(number) for number in numbers)
    assert values(shuffled) == values(",".join(map(str, shuffled))) == expected


@given(st.integers(1, 10**6), st.integers(1, 10**6), st.integers(2, 200))
def test_whole_ranges_are_whole(first: int, last: int, count: int) -> None:
    assume(first < last)
    actual = values(f"{first}:{last}:log{count}", integer=True)
    assert (actual[0], actual[-1]) == (first, last)
    assert all(value.is_integer() for value in actual)
    assert actual == sorted(set(actual))


@given(st.text("0123456789.:,xloginf+-e KMGiBs", max_size=20))
def test_any_text_is_read_or_refused(text: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranges, "LARGEST_AXIS", 1000)
        try:
            actual = parse_values(text, "byte", field="axis", bare_is_si=True)
        except InputError:
            return
    assert (np.diff(actual) > 0).all()
    assert np.isfinite(actual).all()
