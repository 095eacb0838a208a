"""Frameworks: what is shipped, their options, and every fault of a file with its place."""

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overhead.labels import CHOICES, LABELS
from overhead.memory.quantities import RECIPES
from overhead.quantity import VOCABULARY
from sweeps.cli import run
from sweeps.errors import InputError
from sweeps.origin import Origin
from sweeps.spec.catalog import find_spec, framework_names, load_framework
from sweeps.spec.fields import ORIGINS, Figure
from sweeps.spec.files import shipped
from sweeps.spec.framework import FRAMEWORK_RULE, Framework, read_framework
from tests.tables import examples

SHIPPED = tuple(
    (
        "deepspeed fms-fsdp fsdp-llmfoundry internevo maxtext megatron-deepspeed-2022 megatron-lm "
        "paddlenlp torchtitan"
    ).split()
)
# What no framework leaves to the rule.
OWN = tuple(
    (
        "host_launch_time elementwise_factor loss_bytes logit_bytes tp_overlap cp_overlap "
        "ep_overlap dp_overlap"
    ).split()
)
GOOD = examples(__file__, "good")


def load(folder: Path, text: str, options: str = "") -> Framework:
    (folder / "mine.toml").write_text(text, encoding="utf-8")
    return load_framework(f"{folder / 'mine.toml'}{options}")


def faults(folder: Path, text: str) -> tuple[str, ...]:
    with pytest.raises(InputError) as error:
        load(folder, text)
    assert all(line.startswith(f"{folder / 'mine.toml'}: ") for line in error.value.faults)
    return tuple(line.removeprefix(f"{folder / 'mine.toml'}: ") for line in error.value.faults)


@pytest.fixture(params=SHIPPED)
def framework(request: pytest.FixtureRequest) -> Framework:
    return load_framework(shipped("frameworks") / f"{request.param}.toml")


def test_every_shipped_file_is_tested_here() -> None:
    assert tuple(sorted(p.stem for p in shipped("frameworks").glob("*.toml"))) == SHIPPED
    assert set(SHIPPED) <= set(framework_names())


def test_everything_says_where_it_comes_from(framework: Framework) -> None:
    assert framework.title
    assert framework.summary
    assert set(OWN) <= framework.stated
    for part in (framework, *framework.options.values()):
        assert part.summary
        figures: list[tuple[str, Figure]] = [*part.figures.items(), *part.plan.items()]
        choices: list[tuple[str, Origin]] = [*part.choices.items(), *part.precisions.items()]
        given_names = part.stated | set(part.plan) | {name for name, _ in choices}
        every: list[tuple[str, Figure | Origin]] = [*figures, *choices]
        for name, figure in every:
            assert figure.kind in ORIGINS, name
            assert len(figure.source) > 9, name
            # Public sources stand with the version that was read; what has none is assumed.
            if figure.kind != "assumed" and name in given_names:
                assert " @" in figure.source or "arXiv:" in figure.source, name
            if "unverified" in figure.source:
                assert figure.kind == "assumed", name


def test_names_are_the_models(framework: Framework) -> None:
    for part in (framework, *framework.options.values()):
        for name, choice in part.choices.items():
            assert choice.value in (LABELS[name].values or CHOICES), name
        assert all(choice.value in RECIPES for choice in part.precisions.values())
        for name, figure in {**part.figures, **part.plan}.items():
            if name in VOCABULARY:
                assert figure.units == VOCABULARY[name].units, name


def test_sizes_are_plausible(framework: Framework) -> None:
    for part in (framework, *framework.options.values()):
        figures = {name: figure.value for name, figure in part.figures.items()}
        assert 0.0 <= figures.get("host_launch_time", 0.0) <= 100e-6
        assert 0.5 <= figures.get("elementwise_factor", 1.0) <= 8.0
        # A logit is read and written a few times, in two or four bytes.
        assert 6.0 <= figures.get("loss_bytes", 32.0) <= 64.0
        assert 2.0 <= figures.get("logit_bytes", 8.0) <= 16.0
        assert all(0.0 <= value <= 1.0 for name, value in figures.items() if "overlap" in name)


def test_the_host_of_2022_is_what_small_models_show() -> None:
    """Their layers take 3.4 to 3.7 ms a micro-batch, whatever their size."""
    figures = load_framework("megatron-deepspeed-2022").figures
    names = ("forward_operations", "backward_operations", "recompute_operations")
    operations = sum(figures[name].value for name in names)
    assert 3.0e-3 < operations * figures["host_launch_time"].value < 3.7e-3


def test_what_a_file_does_not_state_is_the_rule_s(tmp_path: Path) -> None:
    framework = load(tmp_path, 'title = "Bare"')
    assert dict(framework.figures) == FRAMEWORK_RULE
    assert not framework.stated
    assert framework.labels == {}
    assert load(tmp_path, GOOD).stated == {"host_launch_time", "tp_overlap"}


def test_options_replace_what_they_name(tmp_path: Path) -> None:
    plain, both = load(tmp_path, GOOD), load(tmp_path, GOOD, "+slow+serial")
    assert plain.name == "mine"
    assert both.name == "mine+slow+serial"
    assert both.figures["host_launch_time"].value == 80e-6
    assert both.figures["host_launch_time"].kind == "measured"
    assert both.figures["tp_overlap"].value == 0.0
    assert both.labels == {"recompute": "none"}
    assert both.plan == plain.plan
    unchanged = {n for n in plain.figures if plain.figures[n] == both.figures[n]}
    assert set(plain.figures) - unchanged == {"host_launch_time", "tp_overlap"}
    assert load(tmp_path, GOOD, "+slow+slow").name == "mine+slow"


def test_unknown_names_get_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^framework = 'megatron-ml': not in the catalog"):
        load_framework("megatron-ml")
    with pytest.raises(InputError, match=r"did you mean 'megatron-lm'"):
        load_framework("megatron-ml+serial_tp")
    with pytest.raises(InputError, match=r"'torchtitan\+egaer': has no such option; did you mean"):
        load_framework("torchtitan+egaer")
    with pytest.raises(InputError) as error:
        load(tmp_path, GOOD, "+fast+furious")
    assert len(error.value.faults) == 2
    with pytest.raises(InputError, match="it has no options"):
        load(tmp_path, 'title = "Bare"', "+fast")


def test_options_are_no_part_of_the_file_s_name() -> None:
    assert find_spec("frameworks", "torchtitan+eager").stem == "torchtitan"
    with pytest.raises(InputError, match="no such sweep"):
        find_spec("sweeps", "quickstart+eager")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    examples(__file__, "faults"),
)
def test_a_fault_is_told_with_its_place(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in GOOD
    lines = faults(tmp_path, GOOD.replace(old, new, 1))
    assert any(line.startswith(said) for line in lines), lines


def test_every_fault_is_told_at_once_and_once(tmp_path: Path) -> None:
    text = GOOD.replace('"8 us"', '"8 MB"').replace("value = 0.5", "value = 2")
    text = text.replace('"full"', '"fully"').replace('summary = "Slower."', "summary = 3")
    lines = faults(tmp_path, text)
    assert len(lines) == len(set(lines)) == 4


TEXT = find_spec("frameworks", "torchtitan").read_text(encoding="utf-8")


def outcome(content: dict[str, object]) -> tuple[str, ...]:
    """Return the faults of a content; none where it is a framework."""
    try:
        read_framework(Path("torchtitan.toml"), content)
    except InputError as error:
        return error.faults or ("a refusal without a reason",)
    return ()


@given(st.integers(0, len(TEXT)), st.integers(0, 40), st.text(max_size=5))
def test_a_damaged_file_is_read_or_refused(at: int, cut: int, put: str) -> None:
    try:
        content = tomllib.loads(TEXT[:at] + put + TEXT[at + cut :])
    except ValueError:
        return
    assert all(line.startswith("torchtitan.toml: ") for line in outcome(content))


values = st.recursive(
    st.none() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)
keys = st.sampled_from(["title", "name", "figures", "labels", "recipes", "plan", "options"])
inner_keys = st.sampled_from(
    "figures labels summary host_launch_time recompute bf16 value kind source".split()
)


@pytest.mark.thorough
@given(
    st.dictionaries(
        keys, values | st.dictionaries(inner_keys, values | st.dictionaries(inner_keys, values))
    )
)
def test_any_content_is_read_or_refused(content: dict[str, object]) -> None:
    assert all(line.startswith("torchtitan.toml: ") for line in outcome(content))


def test_the_catalogue_lists_and_shows_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["catalog", "--show", "sources"]) == 0
    listed = capsys.readouterr().out
    assert all(f"\n  {name} " in listed for name in SHIPPED)
    assert run(["catalog", "torchtitan+async_tp", "--show", "sources"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("torchtitan+async_tp  torchtitan\n")
    actual_words = [line.split() for line in shown.splitlines()]
    assert ["host_launch_time", "8", "µs", "assumed"] in [words[:4] for words in actual_words]
    assert ["tp_overlap", "0.2", "measured"] in [words[:3] for words in actual_words]
    assert ["attention_kernel", "flash_2", "assumed"] in [words[:3] for words in actual_words]
    assert "  options, as in torchtitan+eager\n" in shown
    (tmp_path / "mine.toml").write_text(GOOD, encoding="utf-8")
    for asked in (str(tmp_path / "mine.toml"), "mine"):
        assert run(["catalog", asked, "--framework-folder", str(tmp_path)]) == 0
        assert capsys.readouterr().out.startswith("mine  A framework\n")
    assert run(["catalog", "torchtitn"]) == 2
    assert "did you mean 'torchtitan'?" in capsys.readouterr().err
