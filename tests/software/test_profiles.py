"""Profiles as files: what they must have, what a machine takes of them, faults by field."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

import sweeps
from overhead.labels import LABELS, NO_LIBRARY
from overhead.quantity import VOCABULARY
from sweeps.errors import InputError
from sweeps.spec.catalog import hardware_names, load_hardware
from sweeps.spec.files import shipped
from sweeps.spec.machine import CONSTANTS
from sweeps.spec.software import LIBRARY_OF, Profile, load_software, own_library
from tests.tables import examples

NAMES = sorted(path.stem for path in shipped("software").glob("*.toml"))
OF_MACHINES = dict(
    nccl=("aws", "dgx", "gb", "gcp", "grand", "hgx", "l40s", "rtx"), rccl=("mi",), xla=("tpu",)
)


def test_a_profile_a_library() -> None:
    assert set(NAMES) == set(LABELS["library"].values)
    assert all(load_software(name).library == name for name in NAMES)


@pytest.mark.parametrize("library", OF_MACHINES)
def test_every_machine_has_every_constant(library: str) -> None:
    profile = load_software(library)
    machines = [name for name in hardware_names() if name.startswith(OF_MACHINES[library])]
    assert machines
    for name in machines:
        constants = profile.constants(load_hardware(name))
        assert set(CONSTANTS) < set(constants)
        for constant, origin in constants.items():
            assert not VOCABULARY[constant].outside(origin.value), (name, constant)
            assert origin.source, (name, constant)


@pytest.mark.parametrize("name", NAMES)
def test_every_constant_has_an_uncertainty(name: str) -> None:
    profile = load_software(name)
    result = {key for key, share in profile.uncertainty.items() if share > 0.0}
    floors = {key for key in profile.uncertainty if key[1] == "inter_min_time"}
    still = {key for key in profile.uncertainty if key[0] == "environment" and name == "xla"}
    assert set(profile.uncertainty) == result | floors | still


def edited(tmp_path: Path, *changes: tuple[str, str]) -> Path:
    text = (shipped("software") / "nccl.toml").read_text(encoding="utf-8")
    for old, new in (('name = "nccl"', 'name = "own"'), *changes):
        assert old in text
        text = text.replace(old, new, 1)
    path = tmp_path / "own.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_of_ones_own_is_taken(tmp_path: Path) -> None:
    path = edited(tmp_path, ('"5.0 us"', '"15 us"'))
    common = {"ranks": 8, "message_bytes": 1024.0, "hardware": "dgx-h100", "topology": "switch"}
    own, known = (
        float(sweeps.sweep("time", software=software, algorithm="ring", **common).time)
        for software in (str(path), "nccl")
    )
    assert math.isclose(own - known, 10e-6, rel_tol=1e-9)


@pytest.mark.parametrize(("old", "new", "words"), examples(__file__, "faults_name_their_field"))
def test_faults_name_their_field(tmp_path: Path, old: str, new: str, words: str) -> None:
    with pytest.raises(InputError) as error:
        load_software(str(edited(tmp_path, (old, new))))
    assert words in str(error.value)


def h100(**given: str) -> dict[str, object]:
    return {"ranks": 8, "message_bytes": 1024.0, "hardware": "dgx-h100", **given}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (h100(software="mpi"), "not in the catalog"),
        (h100(software="rccl"), "software.generation of dgx-h100 = 'hopper'"),
        (h100(software="nccl", fabric="carrier pigeon"), "no such network"),
        (h100(software="nccl", environment="laptop"), "environment = 'laptop'"),
        (h100(software="none", environment="graph"), "none is given"),
        (h100(software="none", fabric="efa"), "none is given"),
        ({**h100(software="nccl"), "phase_chunks": 4}, "has no form of it"),
    ],
)
def test_bad_input_is_refused_in_a_line(given: dict[str, object], words: str) -> None:
    with pytest.raises(InputError) as error:
        sweeps.sweep("time", **given)  # type: ignore[arg-type]
    assert words in str(error.value)
    assert len(error.value.faults) == 1


def test_a_machine_without_a_generation_gets_the_nearest_in_words(tmp_path: Path) -> None:
    text = (shipped("hardware") / "dgx-h100.toml").read_text(encoding="utf-8")
    plain = text.replace('[software]\ngeneration = "hopper"\nfabric = "infiniband"\n', "")
    path = tmp_path / "mine.toml"
    path.write_text(plain.replace('name = "dgx-h100"', 'name = "mine"'), encoding="utf-8")
    profile: Profile = load_software("nccl")
    constants = profile.constants(load_hardware(path))
    known = profile.constants(load_hardware("dgx-h100"))
    assert {n: constant.value for n, constant in constants.items()} == {
        n: o.value for n, o in known.items()
    }
    assert "hopper is nearest" in constants["step_latency"].source
    assert "taken as infiniband" in constants["inter_node_step_latency"].source
    assert "hopper is nearest" in own_library(load_hardware(path)).source
    # A torus isn't a machine of GPUs.
    torus = replace(load_hardware("tpu-v4"), generation="")
    assert own_library(torus).value == NO_LIBRARY


def test_every_generation_has_a_library() -> None:
    of = {name: load_software(name).nodes for name in NAMES}
    assert {(node, name) for name, nodes in of.items() for node in nodes} == set(LIBRARY_OF.items())


OWN = """
profile = "nccl"
collective_launch_time = { value = "15 us", kind = "measured", source = "a log", uncertainty = 0.1 }
inter_node_step_latency = { value = "20 us", kind = "measured", source = "a log" }
collective_host_time = { value = "43 us", kind = "measured", source = "a log" }
"""


def own_machine(tmp_path: Path, own: str = OWN) -> Path:
    text = (shipped("hardware") / "dgx-h100.toml").read_text(encoding="utf-8")
    text = text.replace('fabric = "infiniband"\n', f'fabric = "infiniband"{own}', 1)
    path = tmp_path / "mine.toml"
    path.write_text(text.replace('name = "dgx-h100"', 'name = "mine"'), encoding="utf-8")
    return path


def test_a_machines_own_constants_stand_in_place_of_the_profiles(tmp_path: Path) -> None:
    path = str(own_machine(tmp_path))
    profile, machine = load_software("nccl"), load_hardware(path)
    constants, known = profile.constants(machine), profile.constants(load_hardware("dgx-h100"))
    assert {n for n in known if constants[n] != known[n]} == {
        "collective_launch_time",
        "inter_node_step_latency",
    }
    launch = constants["collective_launch_time"]
    assert (launch.value, launch.kind, launch.owner) == (15e-6, "measured", "mine")
    assert profile.issue("nccl-tests", machine).value == 43e-6
    assert profile.issue("graph", machine).value == 0.0
    # What is known of one network between nodes says nothing of another, nor of another library.
    both = {
        fabric: sweeps.sweep(
            "time",
            software="nccl",
            hardware=path,
            fabric=fabric,
            ranks=16,
            message_bytes=2.0**30,
            algorithm="nccl",
        ).inter_node_step_latency.item()
        for fabric in ("infiniband", "efa")
    }
    assert both == {"infiniband": 20e-6, "efa": 33e-6}
    other_profile = load_software(str(edited(tmp_path)))
    assert other_profile.constants(machine)["collective_launch_time"].value == 5e-6


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('profile = "nccl"', "", "software.profile: is missing"),
        ('"15 us"', '"-15 us"', "software.collective_launch_time"),
        ("uncertainty = 0.1", "uncertainty = -1", "software.collective_launch_time.uncertainty"),
        ("inter_node_step_latency", "fabric_lateness", "software.fabric_lateness: no such key"),
    ],
)
def test_bad_constants_of_a_machine_are_named(
    tmp_path: Path, old: str, new: str, words: str
) -> None:
    with pytest.raises(InputError, match=words):
        load_hardware(str(own_machine(tmp_path, OWN.replace(old, new))))


def test_software_is_an_axis_beside_machines_and_environments() -> None:
    dataset = sweeps.sweep(
        ["time", "lower_bound"],
        software=["none", "nccl"],
        hardware=["dgx-a100", "dgx-h100"],
        environment=["nccl-tests", "pytorch"],
        ranks=8,
        message_bytes=[8.0, 2.0**30],
        topology="switch",
        algorithm="ring",
    )
    bare = sweeps.sweep(
        "time",
        hardware=["dgx-a100", "dgx-h100"],
        ranks=8,
        message_bytes=[8.0, 2.0**30],
        topology="switch",
        algorithm="ring",
        software="none",
    )
    assert (dataset.time.sel(software=NO_LIBRARY) == bare.time).all()
    priced = dataset.time.sel(software="nccl")
    assert (priced > dataset.time.sel(software=NO_LIBRARY)).all()
    slow, fast = (priced.sel(environment=name) for name in ("pytorch", "nccl-tests"))
    assert (slow.sel(message_bytes=8.0) > 45e-6).all()
    # A slow host hides behind a long operation.
    assert (abs(slow / fast - 1.0).sel(message_bytes=2.0**30) < 1e-6).all()
    assert set(dataset.time.dims) == {"software", "hardware", "environment", "message_bytes"}


def test_a_stored_dataset_is_computed_again() -> None:
    dataset = sweeps.sweep(
        "time",
        software=["none", "nccl"],
        ranks=[8, 16],
        message_bytes=[8.0, 2.0**30],
        algorithm="nccl",
        topology="hierarchical",
        hardware=["dgx-h100", "gb200-nvl72"],
    )
    repeated_dataset = sweeps.recompute(dataset)
    assert (repeated_dataset.time == dataset.time).all()
