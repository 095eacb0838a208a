"""Text to numbers and back: prefixes, bits and bytes, and lines that help."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overhead.everything import load
from overhead.quantity import VOCABULARY
from sweeps.errors import InputError
from sweeps.spec import units
from sweeps.spec.units import example, format_quantity, has_unit, parse_quantity
from tests.each import each
from tests.tables import examples


def read(
    text: object, unit: str, *, bare_is_si: bool = True, allow_infinite: bool = False
) -> float:
    return parse_quantity(
        text, unit, field="field", bare_is_si=bare_is_si, allow_infinite=allow_infinite
    )


def value_or_zero(text: str, unit: str) -> float:
    """Return what is read, or zero where it is refused as it should be."""
    try:
        return read(text, unit)
    except InputError as error:
        return 0.0 if len(error.faults) == 1 else math.nan


def refusal(text: object, unit: str, *, bare_is_si: bool = True) -> str:
    with pytest.raises(InputError) as error:
        read(text, unit, bare_is_si=bare_is_si)
    assert len(error.value.faults) == 1
    return error.value.faults[0]


@pytest.mark.parametrize(("text", "unit", "value"), examples(__file__, "texts_that_people_write"))
def test_texts_that_people_write(text: object, unit: str, value: float) -> None:
    assert read(text, unit) == pytest.approx(value, rel=1e-15, abs=0)


@pytest.mark.parametrize(
    ("text", "unit", "said"),
    [
        *examples(__file__, "refusals_name_field_value_and_what_is_right"),
        ("1" * 500, "1", "is too long"),
        (True, "1", "is not a number"),
        (None, "s", "is not a number"),
        ([1], "1", "is not a number"),
    ],
)
def test_refusals_name_field_value_and_what_is_right(text: object, unit: str, said: str) -> None:
    line = refusal(text, unit)
    assert line.startswith("field = ")
    assert said in line
    assert f"write it for example as {example(unit)}" in line


def test_a_bare_number_is_si_on_the_command_line_and_refused_in_a_file() -> None:
    assert read("450e9", "byte s-1") == 450e9
    assert read(1024, "byte") == 1024.0
    assert "field = 450e9" in refusal("450e9", "byte s-1", bare_is_si=False).replace("'", "")
    assert "has no unit" in refusal(1024, "byte", bare_is_si=False)
    assert read(0, "byte", bare_is_si=False) == read("0", "s", bare_is_si=False) == 0.0
    assert read("8", "1", bare_is_si=False) == 8.0


def test_infinite_stands_where_it_is_allowed() -> None:
    assert math.isinf(read("inf", "byte s-1", allow_infinite=True))
    assert math.isinf(read("inf GB/s", "byte s-1", allow_infinite=True))
    assert math.isinf(read(math.inf, "byte s-1", bare_is_si=False, allow_infinite=True))


@given(st.integers(0, 10**6), st.sampled_from(["k", "M", "G", "T"]))
def test_a_bit_is_an_eighth_of_a_byte(count: int, prefix: str) -> None:
    scale = {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}[prefix]
    assert read(f"{count} {prefix}B", "byte") == count * scale
    assert read(f"{count} {prefix}b", "byte") == count * scale / 8
    assert read(f"{count} {prefix}Bps", "byte s-1") == 8 * read(f"{count}{prefix}bps", "byte s-1")


@given(st.decimals(min_value=0, max_value=10**6, places=4, allow_nan=False))
def test_a_prefix_rounds_once(number: object) -> None:
    # As if the exponent were typed: 1.3 us is the float 1.3e-6, not 1.3 times 1e-6.
    assert read(f"{number} us", "s") == float(f"{number}e-6")
    assert read(f"{number} pJ/bit", "J bit-1") == float(f"{number}e-12")


@each("symbol", [name for name in units._SYMBOLS if name.isidentifier()])
def test_arithmetic_reads_units_as_the_table_does(symbol: str) -> None:
    unit = units._SYMBOLS[symbol]
    for wanted in units._CANONICAL:
        if units._is_kind(unit.powers, wanted):
            assert read(f"3 * {symbol}", wanted) == read(f"3 {symbol}", wanted)


@pytest.mark.parametrize(("text", "unit", "value"), examples(__file__, "arithmetic"))
def test_arithmetic_is_exact_and_groups_from_the_left(text: str, unit: str, value: float) -> None:
    assert read(text, unit) == value


@each(
    "text",
    [
        "2 * (3 s",
        "2 * 3) s",
        "2 * s +",
        "* 2 s",
        "2 * / 3 s",
        "1 000 * 2 s",
        "2001-09-09",
        "(3 s + 4 B)",
        "(3 s + 4)",
        "2^s",
        "2^100 s",
        "2 ^ 3 ^ 2",
        "0 / 0",
        "7 // 2",
        "1e999 * 2 s",
        "2 * $3",
    ],
)
def test_arithmetic_that_is_none_is_refused(text: str) -> None:
    assert "can't be read" in refusal(text, "s")


@given(st.text(max_size=30), st.sampled_from(list(units._CANONICAL)))
def test_any_text_is_read_or_refused(text: str, unit: str) -> None:
    assert math.isfinite(value_or_zero(text, unit))


@given(st.text("0123456789.eE+-*/^() GMuBbs", max_size=16))
def test_any_arithmetic_is_read_or_refused(text: str) -> None:
    assert math.isfinite(value_or_zero(text, "byte"))


def test_a_unit_is_seen() -> None:
    assert has_unit("64 MiB")
    assert has_unit("inf GB/s")
    assert not has_unit("64")
    assert not has_unit("inf")
    assert not has_unit(64)


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (3.2e-6, "s", "3.2 µs"),
        (0.99996e-3, "s", "1 ms"),
        (0.0, "s", "0 s"),
        (86400.0, "s", "24 h"),
        (30 * 86400.0, "s", "30 days"),
        (2.0**26, "byte", "64 MiB"),
        (1024.0, "byte", "1 KiB"),
        (3 * 2.0**30, "byte", "3 GiB"),
        *examples(__file__, "values_as_people_write_them"),
    ],
)
def test_values_as_people_write_them(value: float, unit: str, shown: str) -> None:
    assert format_quantity(value, unit) == shown


@given(
    st.floats(1e-15, 1e20),
    st.sampled_from(["s", "byte", "byte s-1", "J", "J bit-1", "s byte-1", "W", "1 s-1"]),
)
def test_what_is_written_is_read_again(value: float, unit: str) -> None:
    shown = format_quantity(value, unit)
    # Four digits of it; below the smallest prefix, digits after the point.
    assert read(shown, unit) == pytest.approx(value, rel=6e-4)


def test_the_vocabulary_has_no_unit_that_cannot_be_read() -> None:
    load()
    for quantity in VOCABULARY.values():
        plain = quantity.units.removeprefix("1").strip()
        assert read(f"1 {plain}".strip(), quantity.units) == 1.0


def test_a_rate_without_a_limit_is_said_in_a_formula() -> None:
    values = {"staging_bandwidth": math.inf, "message_bytes": 1e9, "ranks": 8.0}
    text = units.put_in("message_bytes/minimum(ranks, staging_bandwidth)", values)
    assert text == "1 GB/minimum(8, unlimited)"
