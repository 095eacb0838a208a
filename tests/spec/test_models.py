"""Models: what is shipped, model files and their faults, bare counts, the catalogue."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overhead.quantity import VOCABULARY
from overhead.transformer import FURTHER_SHAPES, HYBRID_SHAPES, SHAPES
from sweeps.cli import run
from sweeps.errors import InputError
from sweeps.spec.catalog import (
    framework_names,
    hardware_names,
    load_model,
    model_names,
    presets_of,
    spec_names,
)
from sweeps.spec.fields import ORIGINS
from sweeps.spec.files import shipped
from sweeps.spec.model import Model, read_model
from tests.spec.model_files import NEAR, TOTALS, WEIGHTS, anything, outcome
from tests.tables import examples, keyed

CONFIGS = Path(__file__).parents[1] / "data" / "models"
# Narayanan et al. 2021, table 1, in billions to one digit.
MEGATRON = keyed(
    "megatron-1.7b=1.7 megatron-3.6b=3.6 megatron-7.5b=7.5 megatron-18b=18.4 megatron-39b=39.1 "
    "megatron-76b=76.1 megatron-145b=145.6 megatron-310b=310.1 megatron-530b=529.6 "
    "megatron-1t=1008.0"
)
PUBLISHED = (*TOTALS, *NEAR, *MEGATRON)
LATENT_ATTENTION = set(
    (
        "deepseek-v2 deepseek-v2-lite deepseek-v3 deepseek-v3.2 glm-5 glm-5.2 kimi-k2 kimi-k3 "
        "moonlight-16b-a3b"
    ).split()
)
GOOD = examples(__file__, "good")


# What is shipped.


def test_every_shipped_model_is_tested_here() -> None:
    assert {path.stem for path in shipped("models").glob("*.toml")} == {*PUBLISHED}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_shipped_model(name: str) -> None:
    model = load_model(shipped("models") / f"{name}.toml")
    total, active = (model.quantity(count) for count in ("parameters", "active_parameters"))
    if name in MEGATRON:
        assert round(total / 1e9, 1) == MEGATRON[name]
    elif name in NEAR:
        near = NEAR[name]
        active -= near.tables * model.quantity("embedding_parameters")
        assert total / 1e9 == pytest.approx(near.total, rel=near.within)
        if near.active is not None:
            assert active / 1e9 == pytest.approx(near.active or near.total, rel=near.within)
    else:
        assert total == TOTALS[name][0]
        assert active == (TOTALS[name][1] or total)
    assert model.name == name
    assert model.title
    assert model.summary
    assert model.kind in ORIGINS
    assert " @" in model.source
    hybrid = HYBRID_SHAPES if "linear_layers" in model.shapes else ()
    values = {*model.stated, "index_layers"} if "index_heads" in model.stated else model.stated
    further = (name for name in FURTHER_SHAPES[len(HYBRID_SHAPES) :] if name in values)
    assert tuple(model.shapes) == (*SHAPES, *hybrid, *further)
    assert model.labels == {"attention": "mla" if name in LATENT_ATTENTION else "mha"}
    for shape, figure in model.figures.items():
        assert figure.source == (model.source if shape in model.stated else figure.source)
        assert figure.units == VOCABULARY[shape].units
        assert (figure.kind == "assumed") == (shape not in model.stated)
    # What a catalogue shows can be had of every model.
    assert model.quantity("causal_model_flops", sequence_length=4096, global_batch_size=2) > 0


@pytest.mark.parametrize("name", WEIGHTS)
def test_a_model_has_as_many_numbers_as_its_published_weights(name: str) -> None:
    published, model = WEIGHTS[name], load_model(name)
    further = model.quantity("mtp_parameters", mtp_layers=1.0) * published.further
    tables = model.quantity("embedding_parameters") * published.tables
    # To the last number: means over kinds of layers are rounded behind it.
    whole = round(model.quantity("parameters") + further + tables + published.beside)
    assert whole == pytest.approx(published.count, rel=published.within, abs=0.0)
    assert bool(published.why) == (published.within > 0.0)


def test_hugging_face_s_names_are_one_model_s_each() -> None:
    models = [load_model(name) for name in model_names()]
    names = [name.lower() for model in models for name in model.hugging_face]
    assert len(names) == len(set(names))
    assert all(name.count("/") == 1 for name in names)


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("meta-llama/Meta-Llama-3-70B", "llama3-70b"),
        ("meta-llama/llama-3.1-70b-instruct", "llama3-70b"),
        ("Qwen/Qwen3-0.6B", "qwen3-0.6b"),
        ("deepseek-ai/DeepSeek-V3", "deepseek-v3"),
    ],
)
def test_a_name_of_hugging_face_finds_the_model(name: str, ours: str) -> None:
    assert load_model(name) == load_model(ours)


def test_a_name_that_nobody_has() -> None:
    with pytest.raises(InputError, match=r"model = 'llama3-7b': not in the catalog; did you"):
        load_model("llama3-7b")
    with pytest.raises(InputError, match=r"model = 'Qwen/Qwen3-6B': .*did you mean 'Qwen/Qwen3-"):
        load_model("Qwen/Qwen3-6B")
    with pytest.raises(InputError, match=r"no such file; as a name: did you mean"):
        load_model("nowhere/llama3-70.toml")


def test_the_user_s_models_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "llama3-70b.toml").write_text(GOOD)
    (tmp_path / "mine.toml").write_text('hugging_face = "us/ours"\n' + GOOD)
    (tmp_path / "broken.toml").write_text("hugging_face = [")
    assert load_model("llama3-70b", (tmp_path,)).title == "A model"
    assert load_model("us/Ours", (str(tmp_path),)).name == "mine"
    assert "mine" in model_names((tmp_path,))
    (tmp_path / "specs" / "models").mkdir(parents=True)
    (tmp_path / "specs" / "models" / "here.toml").write_text(GOOD)
    monkeypatch.chdir(tmp_path)
    assert load_model("here").path == Path("specs/models/here.toml")


# Model files.


def faults(text: str) -> tuple[str, ...]:
    """Return the faults of a model file, without its path."""
    with pytest.raises(InputError) as error:
        load(text)
    assert all(line.startswith("mine.toml: ") for line in error.value.faults)
    return tuple(line.removeprefix("mine.toml: ") for line in error.value.faults)


def load(text: str) -> Model:
    return read_model(Path("mine.toml"), tomllib.loads(text))


def test_the_smallest_model() -> None:
    model = load(GOOD)
    assert (model.name, model.summary, model.hugging_face) == ("mine", "", ())
    assert model.shapes["kv_heads"] == 2
    assert model.shapes["head_size"] == 4
    assert model.figures["head_size"].source == "not stated: hidden_size/heads"
    assert model.figures["layers"].source == "this test"
    assert model.shapes["moe_layer_frequency"] == 1
    assert sum(value for name, value in model.shapes.items() if name not in model.stated) == 7
    # Layers of 4*64 + 3*8*16 + 16, two tables of 80 and a norm.
    assert model.quantity("parameters") == 2 * (256 + 384 + 16) + 168


def test_a_shape_has_a_source_of_its_own() -> None:
    text = '{ value = 12, kind = "measured", source = "elsewhere" }'
    model = load(GOOD.replace("vocabulary_size = 10", f"vocabulary_size = {text}"))
    figure = model.figures["vocabulary_size"]
    assert (figure.value, figure.kind, figure.source) == (12, "measured", "elsewhere")


MIXTURE = "experts = 4\nexperts_per_token = 2\nexpert_ffn_size = 8\n"
LATENT = "kv_lora_rank = 4\nqk_nope_head_size = 2\nqk_rope_head_size = 2\nv_head_size = 3\n"


def test_experts_and_latent_attention() -> None:
    model = load(GOOD.replace("ffn_size = 16\n", "") + MIXTURE + LATENT)
    assert model.labels == {"attention": "mla"}
    assert model.shapes["head_size"] == 4
    assert model.shapes["ffn_size"] == 0
    assert model.quantity("moe_layers") == 2


@pytest.mark.parametrize(("change", "expected"), examples(__file__, "a_fault_says_what_is_right"))
def test_a_fault_says_what_is_right(change: tuple[str, str], expected: str) -> None:
    assert change[0] in GOOD
    names = faults(GOOD.replace(*change, 1))
    assert any(line.startswith(expected) for line in names), names


@pytest.mark.parametrize(
    ("more", "expected"),
    examples(__file__, "shapes_that_contradict_each_other", LATENT=LATENT, MIXTURE=MIXTURE),
)
def test_shapes_that_contradict_each_other(more: str, expected: str) -> None:
    names = faults(GOOD + more)
    assert len(names) == 1
    assert names[0].startswith(expected)


HYBRID = "".join(
    f"linear_{size} = 2\n"
    for size in ("key_heads", "value_heads", "key_size", "value_size", "kernel")
)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (
            '"LX"',
            "shapes.pattern = 'LX': is no order of layers; at most 130 of the letters L M * E",
        ),
        ("12", "shapes.pattern = 12: is no order of layers"),
        (f'"{"L" * 131}"', "shapes.pattern = 'LLLLL"),
        ('"LL"', "shapes.pattern = '2 linear layers': are others than the counts say; 1 of them"),
        ('"L"', "shapes.pattern = '0 attention layers': are others than the counts say"),
        ('"L*E"', "shapes.pattern = '1 separate MoE layers': are others than the counts say"),
    ],
)
def test_an_order_of_layers_is_one_of_those_there_are(pattern: str, expected: str) -> None:
    text = f"{GOOD}{HYBRID}linear_layers = 1\n"
    assert load(f'{text}pattern = "L*"').pattern == "L*"
    assert load(text).pattern == ""
    assert faults(f"{text}pattern = {pattern}")[0].startswith(expected)


def test_all_faults_at_once() -> None:
    text = GOOD.replace("layers = 2", "layers = -1\nlayer = 2").replace("title", "tilte")
    assert len(faults(text)) == 4


def test_a_bare_count_of_parameters() -> None:
    text = GOOD.split("[shapes]", maxsplit=1)[0]
    assert faults(text) == ("shapes: is missing; write [shapes], or parameters for a bare count",)
    model = load(f"{text}parameters = 70e9\nactive_parameters = 7e9")
    assert model.shapes == {"parameters": 70e9, "active_parameters": 7e9}
    assert model.labels == {}
    assert model.quantity("parameters") == 70e9
    assert faults(f"{text}parameters = 0") == (
        "parameters = 0: isn't allowed; write a whole number, 1 or more (model parameters)",
    )
    assert faults(f"{text}parameters = 5\nactive_parameters = 6")[0].startswith("active_parameters")
    assert faults(f"{text}active_parameters = 6")[0].startswith("parameters: is missing")


def test_what_needs_shapes_says_which() -> None:
    text = GOOD.split("[shapes]", maxsplit=1)[0]
    model = load(f"{text}parameters = 70e9")
    assert model.shapes == {"parameters": 70e9}
    with pytest.raises(InputError) as error:
        model.quantity("forward_flops_per_token")
    assert str(error.value) == (
        f"model = '{model.name}': doesn't say enough: it is a number of parameters alone; "
        "forward_flops_per_token needs layers, hidden_size, heads, ffn_size, vocabulary_size, "
        "gated_mlp, sequence_length"
    )
    with pytest.raises(InputError, match=r"alone; tensor parallelism needs hidden_size$"):
        model.need(
            ("hidden_size", "parameters", "sequence_length"),
            "tensor parallelism",
            {"sequence_length": 4096},
        )
    with pytest.raises(InputError, match=r"doesn't say enough; model_flops_per_token needs sequen"):
        load(GOOD).quantity("model_flops_per_token")
    with pytest.raises(InputError, match=r"quantity = 'parametres': is unknown; did you mean"):
        model.quantity("parametres")
    for wrong in ("nan", "-1"):
        (line,) = faults(f"{text}parameters = {wrong}")
        assert line.startswith(f"parameters = {wrong}")


def test_a_model_is_read_without_heavy_imports() -> None:
    code = (
        "import sys; from sweeps.spec.catalog import load_model\n"
        "load_model('llama3-70b')\n"
        "sys.exit(any(m in sys.modules for m in ('pydantic', 'xarray')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


KEYS = ("title", "kind", "source", "shapes", "parameters", "hugging_face", "name")


@given(
    st.dictionaries(st.sampled_from(KEYS), anything, max_size=4),
    st.dictionaries(st.sampled_from(SHAPES), anything | st.integers(0, 100), max_size=6),
)
def test_any_file_is_a_model_or_a_list_of_faults(
    top: dict[str, Any], shapes: dict[str, Any]
) -> None:
    good = tomllib.loads(GOOD)
    for content in (top, good | top, good | {"shapes": good["shapes"] | shapes}):
        actual_outcome = outcome(lambda content=content: read_model(Path("mine.toml"), content))
        assert all(line.startswith("mine.toml: ") for line in actual_outcome)


# The command.


def test_the_catalogue_lists_machines_models_frameworks_and_libraries(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["catalog", "--show", "sources"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.split() == ["dgx-h100", "NVIDIA", "DGX", "H100"] for line in lines)
    assert any(line.split() == ["llama3-70b", "Llama", "3", "70B"] for line in lines)
    listed = (
        hardware_names(),
        model_names(),
        framework_names(),
        presets_of(),
        spec_names("software"),
    )
    assert len(lines) == sum(map(len, listed)) + 10


@pytest.mark.thorough
@pytest.mark.parametrize("names", [hardware_names(), model_names()])
def test_an_entry_has_at_most_40_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for name in names:
        assert run(["catalog", name]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) <= 40, name
        assert max(map(len, lines)) <= 80, name


def told(capsys: pytest.CaptureFixture[str], *args: str) -> dict[str, str]:
    assert run(["catalog", *args]) == 0
    pairs: list[list[str]] = []
    for line in capsys.readouterr().out.splitlines():
        cells = re.split(" {2,}", line.strip())
        # A model's figures stand two a line.
        two = len(cells) == 4 and cells[2] in VOCABULARY
        pairs += [cells[:2], cells[2:]] if two else [line.split(maxsplit=1)]
    return dict(pair for pair in pairs if len(pair) == 2)


def test_the_catalogue_shows_a_library_with_its_uncertainties(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shown = told(capsys, "nccl", "--show", "sources")
    assert shown["GPUs"].startswith("of generation")
    assert shown["collective_launch_time"].split()[:5] == ["3.9", "µs", "±30", "%", "measured"]
    assert shown["tree_rate_ratio"].split()[:4] == ["0.87", "±4", "%", "measured"]


def test_the_catalogue_shows_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    shown = told(capsys, "llama3-70b", "--seq-len", "8192")
    assert shown["kv_heads"].split()[0] == "8"
    assert shown["parameters"].split()[0] == "70,553,706,496"
    assert shown["forward"] == "FLOPs of one token in a sequence of 8,192"
    assert shown["attention_flops_per_token"].split()[0] == f"{4 * 8192 * 64 * 128 * 80:,}"
    assert shown["logits_flops_per_token"].split()[0] == f"{2 * 8192 * 128256:,}"
    assert shown["shapes:"].startswith("specification, ai-dynamo/aiconfigurator, aic-core")
    # By Hugging Face's name, by the path of a config, and beside a machine.
    assert told(capsys, "Qwen/Qwen3-30B-A3B")["active_parameters"].split()[0] == "3,353,032,704"
    assert told(capsys, str(CONFIGS / "gpt2.json"))["parameters"].split()[0] == "124,439,808"
    both = told(capsys, "dgx-h100", "llama3-8b")
    assert both["gpus_per_node"].startswith("8 ")
    assert both["active_parameters"].split()[0] == "8,030,261,248"


def test_the_catalogue_shows_the_user_s_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    count = GOOD.split("[shapes]", maxsplit=1)[0] + "parameters = 7e9"
    (tmp_path / "mine.toml").write_text(count)
    for args in (("mine", "--model-folder", str(tmp_path)), (str(tmp_path / "mine.toml"),)):
        shown = told(capsys, *args)
        assert shown["parameters"] == "7,000,000,000"
        assert "forward" not in shown
    assert run(["catalog", "llama3-7b"]) == 2
    assert (
        "no such machine, model, framework, preset or library; did you mean 'llama3-"
        in capsys.readouterr().err
    )
    assert run(["catalog", "llama3-8b", "--seq-length", "0"]) == 2
    assert "--seq-length 0: isn't allowed; write a whole number" in capsys.readouterr().err
