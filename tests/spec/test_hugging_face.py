"""config.json of Hugging Face's: what each key means, what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeps.errors import InputError
from sweeps.spec.catalog import load_model
from sweeps.spec.hugging_face import known_kinds
from tests.spec.model_files import OTHERS, TOTALS, anything, outcome
from tests.tables import examples

CONFIGS = Path(__file__).parents[1] / "data" / "models"


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.json")), ids=lambda path: path.stem)
def test_a_config_is_the_catalogue_s_model(path: Path) -> None:
    model = load_model(path)
    assert model.name == path.stem
    assert model.path == path
    if path.stem in OTHERS:
        assert model.quantity("parameters") == OTHERS[path.stem]
        return
    ours = load_model(path.stem)
    # Some configs state sizes that no layer has.
    idle = {"ffn_size"} if ours.quantity("dense_mlp_layers") == 0 else set()
    own, known = (
        {name: value for name, value in model_read.shapes.items() if name not in idle}
        for model_read in (model, ours)
    )
    assert own == known
    assert model.labels == ours.labels
    if path.stem in TOTALS:
        assert model.quantity("parameters") == TOTALS[path.stem][0]
    for figure in model.figures.values():
        assert str(path) in figure.source or figure.source.startswith("not stated")


def test_every_kind_of_model_has_a_config() -> None:
    kinds = {json.loads(path.read_text())["model_type"] for path in CONFIGS.glob("*.json")}
    assert kinds <= set(known_kinds())


def test_a_window_of_mistral_s() -> None:
    assert load_model(CONFIGS / "mistral-7b.json").shapes["sliding_window"] == 4096
    # It states a window and that it isn't used.
    assert load_model(CONFIGS / "qwen2.5-7b.json").shapes["sliding_window"] == 0


def changed(folder: Path, name: str, change: dict[str, Any]) -> Path:
    """Write a config with some keys changed; None drops a key, ``...`` writes null."""
    content = {**json.loads((CONFIGS / f"{name}.json").read_text()), **change}
    kept = {key: value for key, value in content.items() if value is not None}
    path = folder / "config.json"
    path.write_text(json.dumps({k: None if v is ... else v for k, v in kept.items()}))
    return path


def test_a_folder_is_found_by_its_config(tmp_path: Path) -> None:
    changed(tmp_path, "gpt2", {})
    model = load_model(tmp_path)
    assert model.name == tmp_path.name
    assert model.quantity("parameters") == OTHERS["gpt2"]


REQUIRED = examples(__file__, "required")


@pytest.mark.parametrize(
    ("name", "key"), [(name, key) for name, keys in REQUIRED.items() for key in keys]
)
def test_a_missing_key_is_named(name: str, key: str, tmp_path: Path) -> None:
    path = changed(tmp_path, name, {key: None})
    with pytest.raises(InputError) as error:
        load_model(path)
    kind = json.loads(path.read_text())["model_type"]
    assert error.value.faults == (f"{path}: {key}: is missing; every {kind} model has one",)


@pytest.mark.parametrize(
    ("name", "change", "shape", "value"),
    [
        ("llama3-70b", {"num_key_value_heads": None}, "kv_heads", 64),
        ("llama3-70b", {"head_dim": 64}, "head_size", 64),
        ("llama3-70b", {"head_dim": ...}, "head_size", 128),
        ("llama3-70b", {"tie_word_embeddings": None}, "tied_embeddings", 0),
        ("llama3-70b", {"attention_bias": True, "mlp_bias": True}, "linear_bias", 1),
        ("mistral-7b", {"sliding_window": ...}, "sliding_window", 0),
        (
            "qwen2.5-7b",
            {"use_sliding_window": True, "max_window_layers": 0},
            "sliding_window",
            131072,
        ),
        ("qwen2.5-7b", {"use_sliding_window": True}, "sliding_window", 0),
        (
            "qwen2.5-7b",
            {"use_sliding_window": True, "max_window_layers": 10},
            "sliding_window_layers",
            18,
        ),
        ("qwen2.5-7b", {"max_window_layers": 0}, "sliding_window", 0),
        (
            "qwen3-0.6b",
            dict(
                use_sliding_window=True, sliding_window=512, layer_types=["sliding_attention"] * 28
            ),
            "sliding_window",
            512,
        ),
        ("qwen3-30b-a3b", {"mlp_only_layers": [0, 1]}, "dense_layers", 2),
        ("qwen3-30b-a3b", {"decoder_sparse_step": 2}, "moe_layer_frequency", 2),
        ("deepseek-v3", {"q_lora_rank": ...}, "q_lora_rank", 0),
        ("deepseek-v3", {"n_shared_experts": 2}, "shared_ffn_size", 4096),
        ("deepseek-v3", {"n_shared_experts": ...}, "shared_ffn_size", 0),
        ("deepseek-v3", {"topk_method": "greedy"}, "router_bias", 0),
        ("minimax-m2.5", {"shared_intermediate_size": 1536}, "shared_ffn_size", 1536),
        ("minimax-m2.5", {"use_routing_bias": False}, "router_bias", 0),
        # Its class has one, whatever is said.
        ("minimax-m2.5", {"use_routing_bias": None}, "router_bias", 1),
        ("llama3-70b", {"attention_bias": True}, "attention_output_bias", 1),
        ("llama3-70b", {"mlp_bias": True}, "mlp_bias", 1),
        ("qwen3-0.6b", {"attention_bias": True}, "qkv_biases", 1),
        ("pythia-6.9b", {"attention_bias": False}, "mlp_bias", 1),
        ("deepseek-v3", {"moe_layer_freq": 2}, "routed_layers", 29),
        ("deepseek-v3", {"attention_bias": True}, "latent_bias", 1),
        ("qwen3-30b-a3b", {"mlp_only_layers": [3]}, "routed_layers", 47),
        ("qwen3-next-80b-a3b", {"full_attention_interval": 6}, "linear_layers", 40),
        ("qwen3-next-80b-a3b", {"full_attention_interval": None}, "linear_layers", 36),
        (
            "qwen3-next-80b-a3b",
            {"layer_types": ["linear_attention", "full_attention"] * 24},
            "linear_layers",
            24,
        ),
        ("gpt2", {"n_inner": 100}, "ffn_size", 100),
        ("gpt2", {"tie_word_embeddings": False}, "tied_embeddings", 0),
    ],
)
def test_what_a_key_means(
    name: str, change: dict[str, Any], shape: str, value: float, tmp_path: Path
) -> None:
    assert load_model(changed(tmp_path, name, change)).shapes[shape] == value


@pytest.mark.parametrize(
    ("name", "change", "expected"), examples(__file__, "a_config_that_can_t_be")
)
def test_a_config_that_can_t_be(
    name: str, change: dict[str, Any], expected: str, tmp_path: Path
) -> None:
    path = changed(tmp_path, name, change)
    with pytest.raises(InputError) as error:
        load_model(path)
    (line,) = error.value.faults
    assert line.startswith(f"{path}: {expected}")


def test_a_file_that_is_no_config(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    for text, expected in (
        ("[1]", "is not a config: an object"),
        ("{", "is not JSON: "),
        ("[" * 100_000, "is not a config: nested too deeply"),
    ):
        path.write_text(text)
        with pytest.raises(InputError, match=expected):
            load_model(path)
    path.write_bytes(b"\xff")
    with pytest.raises(InputError, match="is not UTF-8"):
        load_model(path)
    with pytest.raises(InputError, match=r"nowhere.json': no such file"):
        load_model(tmp_path / "nowhere.json")


@given(path=st.sampled_from(sorted(CONFIGS.glob("*.json"))), data=st.data())
def test_any_config_is_a_model_or_a_list_of_faults(
    path: Path, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    content = json.loads(path.read_text())
    keys = st.sampled_from(sorted(content))
    content |= data.draw(st.dictionaries(keys, anything | st.integers(0, 100), max_size=3))
    written = tmp_path_factory.mktemp("config") / "config.json"
    written.write_text(json.dumps(content))
    actual_outcome = outcome(lambda: load_model(written))
    assert all(line.startswith(f"{written}: ") for line in actual_outcome)
