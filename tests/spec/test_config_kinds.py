"""Every kind of decoder's config.json: exact counts, kinds of layers, refusals with a way on."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

from overhead.transformer import FURTHER_SHAPES, SHAPES
from sweeps.errors import InputError
from sweeps.spec.catalog import load_model, model_names
from sweeps.spec.config_rules import RULES
from sweeps.spec.config_towers import tower_parameters
from sweeps.spec.files import read_toml, shipped
from sweeps.spec.hugging_face import NO_SHAPES, known_kinds
from sweeps.spec.model import Model
from tests.spec.model_files import VISION, outcome
from tests.tables import examples, keyed

MODELS = Path(__file__).parents[1] / "data" / "models"
ROWS = [json.loads(line) for line in (MODELS / "kinds.jsonl").read_text().splitlines()]
PUBLISHED = {row["name"]: row for row in ROWS if not row["name"].startswith("tiny-")}
SMALL = {row["name"]: row for row in ROWS if row["name"].startswith("tiny-")}
# What can't be said by our shapes, or lacks a size that is one model's own.
REFUSED = examples(__file__, "refused")
WAY_ON = "write its shapes in a TOML file"


def written(folder: Path, content: dict[str, Any]) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(content))
    return path


def refused(name: str) -> str | None:
    """Return how the refusal of a configuration begins; nothing where it is read."""
    given = [start for prefix, start in REFUSED.items() if name.startswith(prefix)]
    stated = "head_dim" in (SMALL | PUBLISHED)[name]["config"]
    return None if not given or (name == "tiny-qwen3-headdim" and stated) else given[0]


def kinds_of(model: Model) -> dict[str, float]:
    """Return how many layers are linear, how many have a window, and how many attend to all."""
    shapes = model.shapes
    linear = shapes.get("linear_layers", 0.0)
    attending = shapes["layers"] - linear
    windowed = shapes.get("sliding_window_layers", attending) if shapes["sliding_window"] else 0.0
    return {"linear": linear, "windowed": windowed, "full": attending - windowed}


WORDS = keyed("linear=linear conv=linear sliding=windowed chunked=windowed full=full")


def differences(row: dict[str, Any], model: Model) -> dict[str, tuple[object, object]]:
    """Return what a model has and what the truth is, where these differ."""
    scored = row["router_biases"] * (row["config"]["model_type"] != "nemotron_h")
    settings = {"parameters": round(model.quantity("parameters"))}
    truth = {"parameters": row["parameters"] + scored - row["vision"]}
    if not row["by_rule"]:
        settings |= {
            "active": round(model.quantity("active_parameters")),
            "moe_layers": int(model.quantity("moe_layers")),
        }
        truth |= {"active": row["active"] + scored, "moe_layers": row["moe_layers"]}
    # A class without a head says nothing of ties.
    if row["name"] != "qwen3-vl-text-4b":
        settings["tied"], truth["tied"] = bool(model.shapes["tied_embeddings"]), row["tied"]
    kinds = dict.fromkeys(WORDS.values(), 0)
    for part in filter(None, row["layer_kinds"].split(";")):
        kind, _, count = part.partition(":")
        if kind in WORDS:
            kinds[WORDS[kind]] += int(count)
    if any(kinds.values()):
        settings["kinds"], truth["kinds"] = kinds_of(model), kinds  # type: ignore[assignment]
    return {
        name: (value_of_kind, truth[name])
        for name, value_of_kind in settings.items()
        if value_of_kind != truth[name]
    }


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_model_counts_exactly(name: str, tmp_path: Path) -> None:
    row = PUBLISHED[name]
    path = written(tmp_path, row["config"])
    if start := refused(name):
        with pytest.raises(InputError, match=re.escape(f"{path}: {start}")):
            load_model(path)
        return
    model = load_model(path)
    assert differences(row, model) == {}
    # Beside Qwen3-Next's weights is a layer that predicts a further token, with GLM's are two
    # tables more for it.
    whole = model.quantity("parameters")
    further = whole + model.quantity("mtp_parameters", mtp_layers=1.0)
    tables = 2.0 * model.quantity("embedding_parameters")
    if row["published"]:
        assert row["published"] - row["vision"] in (whole, further, further + tables)


@pytest.mark.parametrize("kind", sorted({row["config"]["model_type"] for row in SMALL.values()}))
def test_a_key_of_a_kind_counts_exactly(kind: str, tmp_path: Path) -> None:
    for name, row in SMALL.items():
        if row["config"]["model_type"] != kind:
            continue
        path = written(tmp_path, row["config"])
        if start := refused(name):
            with pytest.raises(InputError, match=re.escape(f"{path}: {start}")):
                load_model(path)
        else:
            assert differences(row, load_model(path)) == {}, name


def test_every_kind_is_counted() -> None:
    contents = [row["config"] for row in ROWS]
    contents += [json.loads(path.read_text()) for path in MODELS.glob("*.json")]
    kinds = {content["model_type"].removesuffix("_text") for content in contents}
    # Kinds of which another name, or the code beside the weights, is what is counted.
    same = set(
        (
            "RefinedWeb RefinedWebModel bailing_moe_v2 deepseek falcon_mamba minimax_m1 "
            "minimax_text_01 params stablelm_epoch youtu_llm"
        ).split()
    )
    assert set(known_kinds()) - kinds == same


def test_every_model_of_the_catalogue_has_its_own_config() -> None:
    """GPT-3 and Megatron's models have none; the others are tested to be what theirs says."""
    files = {path.stem for path in MODELS.glob("*.json")} | set(PUBLISHED)
    lacking = {name for name in model_names() if name not in files}
    assert {name.partition("-")[0] for name in lacking} == {"gpt3", "megatron"}


@pytest.mark.parametrize("name", [name for name in PUBLISHED if name in set(model_names())])
def test_a_published_config_is_the_catalogue_s_model(name: str, tmp_path: Path) -> None:
    model = load_model(written(tmp_path, PUBLISHED[name]["config"]))
    assert model.shapes == load_model(name).shapes


def test_the_table_of_kinds_is_whole() -> None:
    """What a kind takes from another stands before it, and each rule is a function."""
    stated = read_toml(shipped("configs") / "kinds.toml")
    before: set[str] = set()
    for name, value_of_kind in stated.items():
        assert value_of_kind.get("like", name) in {*before, name}
        assert set(value_of_kind.get("rules", ())) <= RULES.keys()
        assert set(value_of_kind) - {*NO_SHAPES} <= {*SHAPES, *FURTHER_SHAPES}
        before.add(name)


LLAMA = PUBLISHED["qwen3-8b"]["config"] | {"model_type": "unheard", "attention_bias": True}


def test_a_kind_that_isn_t_known_is_read_as_a_llama(tmp_path: Path) -> None:
    model = load_model(written(tmp_path, LLAMA))
    assert model.summary.startswith("Its kind, unheard, isn't known: read as a Llama, with a gated")
    assert model.shapes["qkv_biases"] == model.shapes["gated_mlp"] == 1.0
    assert model.figures["gated_mlp"].kind == "assumed"
    assert model.note.startswith("Its kind, unheard, isn't known")


@pytest.mark.parametrize(
    ("change", "windowed"),
    [
        ({"use_sliding_window": False}, 0),
        ({"layer_types": ["sliding_attention", "full_attention"] * 18}, 18),
        ({"layer_types": ["full_attention"] * 36}, 0),
        ({}, 36),
    ],
)
def test_windows_of_a_kind_that_isn_t_known(
    change: dict[str, Any], windowed: int, tmp_path: Path
) -> None:
    kept = {key: value for key, value in LLAMA.items() if key != "use_sliding_window"}
    model = load_model(written(tmp_path, {**kept, "sliding_window": 512, **change}))
    assert kinds_of(model)["windowed"] == windowed


# As Meta publishes it beside the weights of Llama 3 70B.
PARAMS = keyed(
    "dim=8192 ffn_dim_multiplier=1.3 multiple_of=4096 n_heads=64 n_kv_heads=8 n_layers=80 "
    "vocab_size=128256"
)


def test_meta_s_own_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "params.json"
    path.write_text(json.dumps(PARAMS))
    assert load_model(path).shapes == load_model("llama3-70b").shapes
    path.write_text(json.dumps(PARAMS | {"vocab_size": -1}))
    with pytest.raises(InputError, match="vocab_size = -1: is its tokenizer's, which isn't here"):
        load_model(path)


def test_an_adapter_names_its_model(tmp_path: Path) -> None:
    path = tmp_path / "adapter_config.json"
    path.write_text(json.dumps({"base_model_name_or_path": "Qwen/Qwen3-8B", "r": 16}))
    with pytest.raises(InputError, match="is an adapter's; give the model: --model Qwen/Qwen3-8B"):
        load_model(path)


@pytest.mark.parametrize(
    ("change", "wrong"), examples(__file__, "a_kind_that_can_t_be_read_says_a_way_on")
)
def test_a_kind_that_can_t_be_read_says_a_way_on(
    change: dict[str, Any], wrong: str, tmp_path: Path
) -> None:
    content = {**LLAMA, **({"layer_types": ["x"]} if "gemma5" in change.values() else {}), **change}
    path = written(tmp_path, content)
    with pytest.raises(InputError) as error:
        load_model(path)
    (line,) = error.value.faults
    assert line.startswith(f"{path}: model_type = ")
    assert wrong in line
    assert WAY_ON in line


def test_a_wrapper_s_tie_rules_over_its_text_s(tmp_path: Path) -> None:
    content = PUBLISHED["mistral-small-3.1-24b"]["config"]
    for number, said in ((True, True), (False, False), (None, False)):
        given = {key: value for key, value in content.items() if key != "tie_word_embeddings"}
        given |= {} if number is None else {"tie_word_embeddings": number}
        assert load_model(written(tmp_path, given)).shapes["tied_embeddings"] == said


@pytest.mark.parametrize("name", [row["name"] for row in ROWS if row["vision"]])
def test_a_tower_is_told_with_its_size(name: str, tmp_path: Path) -> None:
    model = load_model(written(tmp_path, PUBLISHED[name]["config"]))
    count = f"{PUBLISHED[name]['vision']:,} parameters beside those of its text"
    assert model.note == f"The part that sees images isn't counted, {count}"
    assert f"{count}." in model.summary


# Qwen3-VL 8B's published weights hold 8,767,123,696 numbers, Qwen3 8B's those of its text.
QWEN3_VL = examples(__file__, "qwen3_vl")
# Llama 4's, as both models' weights hold it.
LLAMA4 = keyed(
    "hidden_size=1408 image_size=336 intermediate_size=5632 num_hidden_layers=34 patch_size=14 "
    "vision_output_dim=4096"
)


@pytest.mark.parametrize(
    ("kind", "tower", "text", "count"),
    [("qwen3_vl", QWEN3_VL, 4096, 8_767_123_696 - 8_190_735_360), ("llama4", LLAMA4, 5120, VISION)],
)
def test_a_tower_by_its_published_weights(
    kind: str, tower: dict[str, Any], text: int, count: int
) -> None:
    content = {"text_config": {"hidden_size": text}, "vision_config": tower}
    assert tower_parameters(kind, content) == count
    assert (
        tower_parameters(kind, {**content, "vision_config": {**tower, "hidden_size": "x"}}) is None
    )
    assert tower_parameters("unheard", content) is None


def test_a_size_that_is_a_class_s_own_is_assumed(tmp_path: Path) -> None:
    model = load_model(written(tmp_path, SMALL["tiny-gemma-plain"]["config"]))
    figure = model.figures["head_size"]
    assert (figure.value, figure.kind) == (256.0, "assumed")
    assert figure.source.endswith("head_dim: 256 where it isn't given")


def test_a_byte_order_mark_is_no_riddle(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(PUBLISHED["gemma-2b"]["config"]), encoding="utf-8-sig")
    assert load_model(path).quantity("parameters") == PUBLISHED["gemma-2b"]["parameters"]


ODD: list[Any] = [
    None,
    True,
    False,
    0,
    1,
    -1,
    2,
    7,
    1.5,
    float("nan"),
    float("inf"),
    10**30,
    10**400,
    "",
    "x",
    "4",
    "auto",
    "LLLG",
    [],
    [1],
    [0],
    [True],
    ["full_attention"],
    [[["local", "global"], 2]],
    [[]],
    [None],
    {},
    {"kda_layers": [1]},
    {"kv_n_heads": "x"},
]


@pytest.mark.parametrize(
    "count", [150, pytest.param(3000, marks=pytest.mark.thorough)], ids=["some", "many"]
)
def test_a_bent_file_is_a_model_or_a_list_of_faults(count: int, tmp_path: Path) -> None:
    """Keys dropped, bent or of another kind: no traceback, each fault with its file."""
    chance = random.Random(46)
    for _ in range(count):
        content = dict(chance.choice(ROWS)["config"])
        for _ in range(chance.randint(1, 3)):
            key = chance.choice(sorted(content) or ["x"])
            if chance.random() < 0.25:
                content.pop(key, None)
            else:
                content[key] = chance.choice(ODD)
        path = written(tmp_path, content)
        faults = outcome(lambda: load_model(path))  # noqa: B023
        assert all(line.startswith(f"{path}: ") for line in faults)
