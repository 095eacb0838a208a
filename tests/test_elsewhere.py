"""Names that other calculators and frameworks have are met by a message that names ours."""

from __future__ import annotations

import pytest

import overhead
import sweeps
import sweeps.tuner
from overhead.labels import LABELS
from overhead.quantity import VOCABULARY
from sweeps.elsewhere import IN_PYTHON, named_here, read_names
from sweeps.errors import InputError
from sweeps.former import FORMER
from sweeps.spec.names import OTHER_NAMES
from tests.cli_runner import Runner
from tests.tables import examples, keyed


def test_names_of_elsewhere_are_none_of_ours_and_mean_one_of_ours() -> None:
    ours = {*VOCABULARY, *LABELS, "model", "hardware"}
    for name, meant in read_names().items():
        assert name not in {*ours, *OTHER_NAMES, *FORMER}
        assert {*meant} <= ours, name


@pytest.mark.parametrize(("name", "value", "ours"), examples(__file__, "unknown_keywords"))
def test_unknown_keywords_name_ours(name: str, value: float, ours: str) -> None:
    with pytest.raises(InputError, match=f"^{name} = .*: no such quantity; here it is .*'{ours}'$"):
        sweeps.sweep("time", message_bytes=1e6, **{name: value})


def test_a_hint_is_only_what_can_be_given_there() -> None:
    assert named_here("--num-ranks", {"ranks"}) == "ranks"
    assert named_here("num_ranks", {"world_size"}) == "world_size"
    assert named_here("num_ranks", {"tp"}) is None
    assert named_here("nonsense", {"tp"}) is None


def test_python_names_of_elsewhere_name_ours() -> None:
    for name, value in IN_PYTHON.items():
        with pytest.raises(AttributeError) as caught:
            getattr(sweeps, name)
        assert str(caught.value).endswith(f"has no attribute '{name}'; here it is {value}")
        package, _, rest = value.partition(".")
        assert hasattr(
            {"overhead": overhead, "sweeps": sweeps}[package],
            rest.split("(")[0].split(".")[0].split(",")[0],
        )
    with pytest.raises(AttributeError, match=r"no attribute 'nix'$"):
        _ = sweeps.nix  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match=r"analyze_config\(config\)\.memory"):
        _ = overhead.MemoryBreakdown


def test_symbols_and_a_call_of_another_calculator() -> None:
    network = overhead.build_topology("ring", 8, B=1e9, alpha=1e-6)
    found = overhead.collective_latency_and_volume("all_reduce", 1e9, network)
    # 14 steps of an eighth of the message.
    assert found.latency_s == pytest.approx(14 * (1e-6 + 1e9 / 8 / 1e9))
    two = {"B1": 1e9, "alpha1": 1e-6, "B2": 1e8, "alpha2": 1e-5}
    named = keyed("intra_bandwidth=1e9 intra_latency=1e-6 inter_bandwidth=1e8 inter_latency=1e-5")
    first, second = (
        overhead.build_topology("hierarchical", 8, gpus_per_node=4, **levels)
        for levels in (two, named)
    )
    assert overhead.collective("all_reduce", 1e9, first).latency_s == (
        overhead.collective("all_reduce", 1e9, second).latency_s
    )


def test_the_tuner_is_where_its_users_look() -> None:
    from sweeps import tuner
    from sweeps.tuner import TPOverlapTuner, TPOverlapTunerConfig

    config = TPOverlapTunerConfig("llama3-8b", max_tp_size=2)
    assert TPOverlapTuner(config).config is config
    with pytest.raises(AttributeError, match="nothing"):
        _ = tuner.nothing


def test_durations_without_a_unit_are_read_aloud(cli: Runner) -> None:
    bare = cli("overlap --compute 50 --comm 10ms --efficiency 0.8").out
    assert "(--compute 50 is read as 50 s; 50ms is milliseconds)" in bare
    assert "--comm 10" not in bare
    assert "is read as" not in cli("overlap --compute 50ms --comm 10ms --efficiency 0.8").out
