"""MaxText's YAML as quantities.

What isn't said is as AI-Hypercomputer/maxtext @e591f30cb has it in src/maxtext/configs/base.yml.
"""

from __future__ import annotations

import re
from math import isnan, log2, nan, prod

from sweeps.launch.arguments import FALSE, Settings
from sweeps.launch.terms import keys_of, terms_of
from sweeps.spec.catalog import load_model

FORMAT = "MaxText YAML"
VERSION = "MaxText @e591f30cb"
KEYS = "maxtext"


def read_config(settings: Settings) -> None:
    """Take quantities from a configuration."""
    reading = settings.reading
    reading.version = VERSION
    _model(settings)
    chips = _machine(settings)
    degrees = _degrees(settings, chips)
    _batch(settings, degrees)
    _software(settings)
    settings.classify(keys_of(KEYS))


def _model(settings: Settings) -> None:
    name = settings.text("model_name", default="default")
    if "model" in settings.overrides:
        return
    models = terms_of(KEYS)["models"]
    if name in models:
        settings.take("model", models[name], "model_name")
        _unchanged(settings, models[name])
        return
    if name != "default":
        setting = settings.by_name["model_name"]
        settings.reading.fault(setting, name, "is no model of the catalog; give --model")
        return
    scales = _scales(settings)
    for name, key in keys_of(KEYS).items():
        if key.quantity:
            value = settings.number(name, default=key.usual) * scales.get(name, 1.0)
            settings.take(key.quantity, value, name, why=f"{name} {key.usual:g}")
    activations = settings.find("mlp_activations")
    gated = activations is None or len(activations.value) > 1
    settings.take("gated_mlp", float(gated), "mlp_activations")
    settings.take_flag("tied_embeddings", "logits_via_embedding")
    experts = settings.number("num_experts", default=1.0)
    if experts > 1.0:
        own = settings.number("base_moe_mlp_dim") * scales["base_mlp_dim"]
        wide = settings.reading.given["ffn_size"] if isnan(own) else own
        settings.take("experts", experts, "num_experts")
        top = settings.number("num_experts_per_tok", default=1.0)
        settings.take("experts_per_token", top, "num_experts_per_tok")
        settings.take("expert_ffn_size", wide, "base_moe_mlp_dim")
        shared = settings.number("shared_experts", default=0.0)
        settings.take("shared_ffn_size", shared * wide, "shared_experts")
        dense = settings.number("first_num_dense_layers", default=0.0)
        settings.take("dense_layers", dense, "first_num_dense_layers")
    further = settings.number("mtp_num_layers", default=0.0)
    if further:
        settings.take("mtp_layers", further, "mtp_num_layers")


def _scales(settings: Settings) -> dict[str, float]:
    """Return what each dimension is multiplied by: doublings of the whole go round among them."""
    scale = settings.number("global_parameter_scale", default=1.0)
    doublings = round(log2(max(scale, 1.0)))
    if scale != 2.0**doublings:
        setting = settings.by_name["global_parameter_scale"]
        settings.reading.fault(setting, "", "is no power of two")
    whole, rest = divmod(doublings, 3)
    wider, deeper = 2.0 ** (whole + (rest > 0)), 2.0**whole
    heads = ("base_num_query_heads", "base_num_kv_heads", "base_mlp_dim")
    hidden = 2.0 ** (whole + (rest > 1))
    return {
        **dict.fromkeys(heads, wider),
        "base_emb_dim": hidden,
        "base_num_decoder_layers": deeper,
    }


def _unchanged(settings: Settings, model: str) -> None:
    """Refuse shapes that a file states beside a named model and that aren't the model's."""
    figures = load_model(model).figures
    for name, key in keys_of(KEYS).items():
        if key.quantity in figures and name in settings.by_name:
            own = figures[key.quantity].value
            if settings.number(name, default=own) != own:
                wrong = f"isn't that of {model} ({own:g})"
                advice = "leave it out, or give --model with a file of such shapes"
                settings.reading.fault(settings.by_name[name], "", f"{wrong}; {advice}")
    if settings.number("global_parameter_scale", default=1.0) != 1.0:
        setting = settings.by_name["global_parameter_scale"]
        settings.reading.fault(setting, "", f"changes {model}; leave out one of both")


def _machine(settings: Settings) -> float:
    """Take the machine and its chips; return how many there are, NaN where that isn't said."""
    ruled = settings.overruled("world_size", None)
    text = settings.text("compile_topology")
    slices = settings.number("compile_topology_num_slices", "num_slices", default=1.0)
    match = re.fullmatch(r"([a-z0-9]+)-(\d+)", text)
    chips = terms_of(KEYS)["chips"]
    if match is None or match[1] not in chips:
        if ruled is None:
            settings.reading.asks.append("--gpus")
        return nan if ruled is None else ruled
    machine, cores = chips[match[1]]
    settings.take("hardware", machine, "compile_topology")
    count = int(match[2]) // cores * max(slices, 1.0)
    settings.take("world_size", count, "compile_topology")
    return count if ruled is None else ruled


def _degrees(settings: Settings, chips: float) -> dict[str, float]:
    """Take the parallel degrees: over links of a slice, times those between slices."""
    degrees: dict[str, float] = {}
    keys: dict[str, list[str]] = {}
    free = ""
    for name, words in terms_of(KEYS)["parallelism"].items():
        keys[name] = [f"{level}_{word}_parallelism" for level in ("ici", "dcn") for word in words]
        usual = {"ici_fsdp_parallelism": -1.0, "dcn_data_parallelism": -1.0}
        values = [settings.number(key, default=usual.get(key, 1.0)) for key in keys[name]]
        if any(value < 0.0 for value in values):
            free = "fsdp" if name == "fsdp" else free or name
        degrees[name] = prod(value for value in values if value > 0.0)
    slices = settings.number("compile_topology_num_slices", "num_slices", default=1.0)
    if settings.number("dcn_data_parallelism", default=-1.0) < 0.0:
        degrees["data"] *= max(slices, 1.0)
    if settings.number("ici_fsdp_parallelism", default=-1.0) < 0.0:
        degrees["fsdp"] *= chips / prod(degrees.values())  # NaN where nobody says how many
    for name in ("tp", "cp", "pp"):
        settings.take(name, degrees[name], *keys[name])
    if degrees["ep"] > 1.0:
        settings.take("ep", degrees["ep"], *keys["ep"])
    shards = degrees["fsdp"] * degrees["cp"] * degrees["ep"]
    sharded = isnan(degrees["fsdp"]) or degrees["fsdp"] > 1.0
    settings.take("zero_stage", 3.0 if sharded else 0.0, *keys["fsdp"])
    if degrees["fsdp"] > 1.0 and degrees["data"] > 1.0:
        settings.take("hsdp_shard_size", shards, *keys["fsdp"])
    if degrees["cp"] > 1.0:
        text = settings.text("context_parallel_strategy", default="all_gather")
        way = terms_of(KEYS)["context_parallel_strategy"].get(text, "all_gather")
        settings.take("context_parallel", way, "context_parallel_strategy")
    if degrees["tp"] > 1.0:
        together = settings.number("ici_tensor_sequence_parallelism", default=1.0) > 1.0
        settings.take("sequence_parallel", float(together), "ici_tensor_sequence_parallelism")
    return degrees


def _batch(settings: Settings, degrees: dict[str, float]) -> None:
    why = "sequences of 2,048 tokens"
    length = settings.take_number("sequence_length", "max_target_length", usual=2048.0, why=why)
    each = settings.number("per_device_batch_size", default=12.0, whole=False)
    micro = each * degrees["tp"] * degrees["cp"] * degrees["pp"]
    steps = settings.number("gradient_accumulation_steps", default=1.0)
    parts = settings.number("num_pipeline_microbatches", default=-1.0)
    if degrees["pp"] > 1.0:
        parts = parts if parts > 0.0 else degrees["pp"]
        micro /= parts
        steps *= parts
        chunks = settings.number("num_layers_per_pipeline_stage", default=1.0)
        settings.reading.notes.append(
            f"num_layers_per_pipeline_stage {chunks:g}: stages as even as they can be are taken"
        )
    settings.take("micro_batch_size", micro, "per_device_batch_size", why="12 sequences a device")
    dp = degrees["fsdp"] * degrees["data"] * degrees["ep"]
    batch = micro * steps * dp
    settings.take("global_batch_size", batch, "per_device_batch_size")
    count = settings.number("steps")
    if not isnan(count):
        settings.take("training_tokens", count * batch * length, "steps")


def _software(settings: Settings) -> None:
    gpu = settings.text("hardware", default="tpu") in ("gpu", "gpu_multiprocess")
    settings.take("framework", "maxtext+gpu" if gpu else "maxtext", "hardware")
    words = terms_of(KEYS)
    settings.take_word(
        "precision", "quantization", words["quantization"], "", "no quantization: bf16"
    )
    policies = words["remat_policy"]
    policy = settings.take_word("recompute", "remat_policy", policies, "full", "remat_policy full")
    if policy in policies and policy != "full" and "recompute" not in settings.overrides:
        nearest = f"recompute {policies[policy]} is nearest"
        if "except_mlp" in policy:
            nearest += (
                " in time, and has too much memory: MLPs are made again, as with --recompute "
                "selective --recompute-mlp on --recompute-layernorm on"
            )
        settings.reading.notes.append(
            f"remat_policy {policy} keeps, makes again or offloads some tensors: {nearest}"
        )
    if policy == "custom" and settings.text("context", default="remat") != "remat":
        settings.take("recompute_core_attn", 0.0, "context", why="attention's results are kept")
    tiles = settings.number("num_vocab_tiling", default=1.0)
    if tiles > 1.0:
        settings.take("loss", "vocab_tiling", "num_vocab_tiling")
        settings.take("loss_chunks", tiles, "num_vocab_tiling")
    settings.take_switch("optimizer_offload", "optimizer_memory_host_offload")
    if settings.text("weight_dtype", default="float32") == "bfloat16":
        settings.take("recipe", "bf16_adam", "weight_dtype")
    kernel = words["attention"].get(settings.text("attention"), "flash_2")
    settings.take("attention_kernel", kernel, "attention")
    rate = settings.number("dropout_rate", default=0.0, whole=False)
    on = settings.text("enable_dropout", default="true").lower() not in FALSE
    settings.take("dropout", float(on and rate > 0.0), "dropout_rate")
