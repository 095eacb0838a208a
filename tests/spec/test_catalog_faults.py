"""Broken hardware files: every fault at once, each with file, key and what is right."""

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeps.errors import InputError
from sweeps.spec.catalog import find_spec, load_hardware
from sweeps.spec.files import read_toml
from sweeps.spec.machine import Machine, read_machine
from tests.tables import examples, keyed

FIGURE = 'value = "{}", kind = "assumed", source = "this test"'
GOOD = examples(__file__, "good")


def load(folder: Path, text: str) -> Machine:
    (folder / "mine.toml").write_text(text, encoding="utf-8")
    return load_hardware(folder / "mine.toml")


def faults(folder: Path, text: str) -> tuple[str, ...]:
    with pytest.raises(InputError) as error:
        load(folder, text)
    assert all(str(folder / "mine.toml") in line for line in error.value.faults)
    return tuple(line.removeprefix(f"{folder / 'mine.toml'}: ") for line in error.value.faults)


def changed(old: str, new: str) -> str:
    assert GOOD.count(old) >= 1
    return GOOD.replace(old, new, 1)


def outcome(path: str, content: dict[str, object]) -> tuple[str, ...]:
    """Return the faults of a content; none where it is a machine."""
    try:
        assert read_machine(Path(path), content).name
    except InputError as error:
        return error.faults or ("a refusal without a reason",)
    return ()


def test_the_smallest_machine(tmp_path: Path) -> None:
    machine = load(tmp_path, GOOD)
    assert machine.name == "mine"
    assert machine.summary == ""
    assert machine.scale_out_in_network == ("sharp",)
    assert machine.figures["inter_bandwidth"].value == 50e9
    assert "intra_energy_per_bit" not in machine.figures


def test_a_node_without_a_network(tmp_path: Path) -> None:
    machine = load(tmp_path, GOOD.split("[scale_out]", maxsplit=1)[0])
    assert "inter_bandwidth" not in machine.figures


def test_a_third_level(tmp_path: Path) -> None:
    pod = (
        "[pod]\n"
        f"nodes_per_pod = {{ {FIGURE.format(32)} }}\n"
        f"bandwidth = {{ {FIGURE.format('25 GB/s')} }}\n"
        f"latency = {{ {FIGURE.format('4 us')} }}\n"
        f"energy_per_bit = {{ {FIGURE.format('50 pJ/bit')} }}\n"
        f"oversubscription = {{ {FIGURE.format(2)} }}\n"
    )
    figures = load(tmp_path, GOOD + pod).figures
    actual = {name: figure.value for name, figure in figures.items() if "pod" in name}
    assert actual == keyed(
        "nodes_per_pod=32.0 pod_bandwidth=25e9 pod_latency=4e-6 pod_energy_per_bit=5e-11 "
        "pod_oversubscription=2.0"
    )


@pytest.mark.parametrize(("old", "new", "said"), examples(__file__, "faults"))
def test_a_fault_is_told_with_its_place(tmp_path: Path, old: str, new: str, said: str) -> None:
    lines = faults(tmp_path, changed(old, new))
    assert any(said in line for line in lines), lines


def test_every_fault_is_told_at_once(tmp_path: Path) -> None:
    text = changed('"450 GB/s"', '"450 Gbit"').replace('"switch"', '"swich"')
    text = text.replace("value = 8", "value = -8").replace('title = "A machine"', "titel = 3")
    assert len(faults(tmp_path, text)) == 6


TRAINING = f"""
[device.peak_flops]
bf16 = {{ {FIGURE.format("989 TFLOP/s")} }}
[device.peak_measured_matmul_flops]
bf16 = {{ {FIGURE.format("794 TFLOP/s")} }}
[training]
memory_efficiency = {{ {FIGURE.format("85 %")} }}
step_overhead = {{ {FIGURE.format("1 ms")} }}
[training.matmul_efficiency]
bf16 = {{ {FIGURE.format("80 %")} }}
[training.attention_efficiency]
flash_2 = {{ {FIGURE.format("40 %")} }}
"""


def test_what_long_runs_sustain(tmp_path: Path) -> None:
    figures = load(tmp_path, GOOD + TRAINING).figures
    names = ("memory_efficiency", "matmul_efficiency_bf16", "attention_efficiency_flash_2")
    assert [figures[name].value for name in names] == [0.85, 0.8, 0.4]
    assert figures["step_overhead"].value == 1e-3


@pytest.mark.parametrize(
    ("old", "new", "said"),
    examples(__file__, "sustained"),
)
def test_faults_of_what_long_runs_sustain(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert TRAINING.count(old) == 1
    lines = faults(tmp_path, GOOD + TRAINING.replace(old, new))
    assert len(lines) == 1
    assert said in lines[0]


@pytest.mark.parametrize(
    ("port", "right"), [("450 GB/s", True), ("900 GB/s", False), ("450 Gbit/s", False)]
)
def test_a_port_is_its_links_together(tmp_path: Path, port: str, right: bool) -> None:
    links = (
        f"links = {{ {FIGURE.format(18)} }}\nlink_bandwidth = {{ {FIGURE.format('25 GB/s')} }}\n"
    )
    text = changed('kind = "switch"\n', f'kind = "switch"\n{links}').replace("450 GB/s", port)
    if right:
        assert load(tmp_path, text).figures["intra_links"].value == 18.0
    else:
        assert "18 links of 2.5e+10 byte/s are 4.5e+11" in faults(tmp_path, text)[0]


def test_unknown_names_get_the_nearest() -> None:
    with pytest.raises(InputError) as error:
        load_hardware("dgx-h1000")
    assert str(error.value).startswith("hardware = 'dgx-h1000': not in the catalog; did you")
    assert "'dgx-h100'" in str(error.value)
    with pytest.raises(InputError, match=r"not in the catalog; known: .*gaudi3"):
        load_hardware("")
    with pytest.raises(InputError, match=r"no such file; as a name: did you mean 'dgx-h100'"):
        load_hardware("somewhere/dgx-h10.toml")


def test_what_is_no_text_file(tmp_path: Path) -> None:
    (tmp_path / "bytes.toml").write_bytes(b"title = \xff")
    with pytest.raises(InputError, match="is not UTF-8 text"):
        load_hardware(tmp_path / "bytes.toml")
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises(InputError, match="no such file"):
        load_hardware(tmp_path / "folder.toml")
    with pytest.raises(InputError, match="can't be read"):
        read_toml(tmp_path / "gone.toml")


@pytest.mark.parametrize("text", ["[" * 5000, "x = " + "[" * 5000, "x = " + "9" * 5000])
def test_files_made_to_break_the_reader(tmp_path: Path, text: str) -> None:
    assert len(faults(tmp_path, text)) == 1


SHIPPED = find_spec("hardware", "mi300x").read_text(encoding="utf-8")


@given(st.integers(0, len(SHIPPED)), st.integers(0, 40), st.text(max_size=5))
def test_a_damaged_file_is_read_or_refused(at: int, cut: int, put: str) -> None:
    try:
        content = tomllib.loads(SHIPPED[:at] + put + SHIPPED[at + cut :])
    except ValueError:
        return
    assert all(line.startswith("mi300x.toml: ") for line in outcome("mi300x.toml", content))


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)
keys = st.sampled_from(["title", "name", "scale_up", "scale_out", "device", "pod", "training"])
inner_keys = st.sampled_from(
    (
        "kind bandwidth latency dimensions in_network peak_flops matmul_efficiency bf16 value "
        "source"
    ).split()
)


@pytest.mark.thorough
@given(
    st.dictionaries(
        keys, values | st.dictionaries(inner_keys, values | st.dictionaries(inner_keys, values))
    )
)
def test_any_content_is_read_or_refused(content: dict[str, object]) -> None:
    assert all(line.startswith("any.toml: ") for line in outcome("any.toml", content))


def test_a_machine_is_like_another(tmp_path: Path) -> None:
    text = 'name = "mine"\ntitle = "Mine"\nlike = {like}\n[scale_up]\n{more}'
    (tmp_path / "there.toml").write_text(GOOD.replace('"mine"', '"there"'), encoding="utf-8")
    figure = '{ value = "1 GB/s", kind = "measured", source = "this test" }'
    machine = load(tmp_path, text.format(like='"there"', more=f"bandwidth = {figure}"))
    assert machine.figures["intra_bandwidth"].value == 1e9
    assert machine.figures["intra_bandwidth"].source == "this test"
    assert machine.figures["intra_latency"].source == "as on there: this test"
    for like, expected in (
        ("3", "like = 3: is not a name"),
        ('"nowhere"', "like: hardware = 'nowhere': not in the catalog"),
        ('"mine"', "like = 'mine': is itself like another"),
    ):
        assert faults(tmp_path, text.format(like=like, more=""))[0].startswith(expected)
    # Its own title and name are its own.
    assert "title: is missing" in faults(tmp_path, 'name = "mine"\nlike = "there"\n')
