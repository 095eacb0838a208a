"""torchtitan's configuration as quantities: the TOML of 2025, the Python functions of 2026.

What isn't said is as torchtitan/config/job_config.py has it at pytorch/torchtitan @000204a4a8
(TOML), or torchtitan/config at @b5bcd76c6 (Python).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import nan

from sweeps.launch.arguments import Settings, arguments
from sweeps.launch.documents import typed
from sweeps.launch.python_config import CALLED, FROM, PLACE
from sweeps.launch.setting import Location, Setting, Unread
from sweeps.launch.shell import Word
from sweeps.launch.terms import keys_of, terms_of
from sweeps.spec.catalog import load_model

KEYS = "torchtitan"
CHUNKED = ("ChunkedLoss", "ChunkedCELoss")  # How classes begin whose losses are in chunks
FOLDED = ("zero_bubble_v", "dual_pipe_v")  # Schedules of two chunks on each rank


@dataclass(frozen=True, slots=True)
class Generation:
    """What a generation of the configuration calls things, and what holds where it is silent."""

    format: str
    version: str
    recompute: str  # Without a setting
    selective: str  # Of selective recomputation without an option


TOML = Generation("torchtitan TOML", "torchtitan @000204a4a8", "selective", "2")
PYTHON = Generation("torchtitan Python configuration", "torchtitan @b5bcd76c6", "selective", "op")


def settings_of(words: Sequence[Word], file: str) -> Iterator[Setting]:
    """Yield a command line's arguments, ``--table.key value`` or ``--table.key=value``."""
    for flag, values, line in arguments(words):
        name = flag[2:].replace("-", "_")
        no = re.match(r"((?:\w+\.)*)no_(\w+)$", name)
        spelling = f"{no[1]}{no[2]}" if no and not values else name
        value = typed(" ".join(values)) if values else not no
        yield Setting(spelling, value, Location(file, line), f"--{name}")


def read_job(settings: Settings, generation: Generation) -> None:
    """Take quantities from a job's settings."""
    reading = settings.reading
    reading.version = generation.version
    layers = _model(settings)
    degrees = _degrees(settings)
    dp = _data_parallel(settings, degrees)
    _batch(settings, degrees, dp, generation)
    _pipeline(settings, degrees["pp"], layers)
    _recompute(settings, layers / degrees["pp"], generation)
    options = _software(settings, degrees)
    _precision(settings, options)
    # torch.autocast has mixed precision where nothing shards (torchtitan/distributed/utils.py,
    # maybe_enable_amp).
    alone = reading.given.get("zero_stage") == 0.0 and max(degrees.values()) == 1.0
    if alone and "recipe" not in reading.given:
        options.append("autocast")
    name = "+".join(("torchtitan", *dict.fromkeys(options)))
    settings.take("framework", name)
    settings.classify(keys_of(KEYS))


def _model(settings: Settings) -> float:
    """Take the catalogue's model of a name and a flavor; return its layers."""
    kind, flavor = settings.text("model.name", default="llama3"), settings.text("model.flavor")
    if "model" in settings.overrides:
        return _layers(settings.overrides["model"].text)
    models = terms_of(KEYS)["models"]
    name = next((name for name, pair in models.items() if pair == [kind, flavor]), None)
    if name is None:
        known = [entry for model, entry in models.values() if model == kind]
        setting = settings.find("model.flavor", "model.name")
        wrong = f"{kind} {flavor or 'debugmodel'} is no model of the catalog"
        more = f"; of {kind} it has {', '.join(known)}" if known else ""
        location = setting.location if setting else settings.reading.file
        settings.reading.faults.append(f"{location}: model.flavor: {wrong}{more}; give --model")
        return nan
    settings.take("model", name, "model.flavor", "model.name")
    return _layers(name)


def _layers(name: str) -> float:
    return load_model(name).shapes["layers"]


def _degrees(settings: Settings) -> dict[str, float]:
    degrees = {}
    for name, long in (("tp", "tensor"), ("pp", "pipeline"), ("cp", "context")):
        keys = (f"parallelism.{long}_parallel_degree", f"training.{long}_parallel_degree")
        degrees[name] = settings.take_number(name, *keys, usual=1.0)
    experts = settings.number("parallelism.expert_parallel_degree", quantity="ep", default=1.0)
    if "parallelism.expert_parallel_degree" in settings.by_name:
        settings.take("ep", experts, "parallelism.expert_parallel_degree")
        etp = settings.number("parallelism.expert_tensor_parallel_degree", default=1.0)
        settings.take("etp", etp, "parallelism.expert_tensor_parallel_degree")
    if degrees["tp"] > 1.0:
        name, why = "enable_sequence_parallel", "sequence parallelism with tensor parallelism"
        on = settings.text(f"parallelism.{name}", default="true").lower() != "false"
        settings.take("sequence_parallel", float(on), f"parallelism.{name}", why=why)
    if degrees["cp"] > 1.0:
        name = "parallelism.context_parallel_rotate_method"
        gathers = settings.text(name, default="allgather") == "allgather"
        way = "all_gather" if gathers else "ring"
        settings.take("context_parallel", way, name, why="context by all-gather")
    return degrees


def _data_parallel(settings: Settings, degrees: Mapping[str, float]) -> float:
    """Take the number of GPUs and how they share weights; return the data-parallel ranks."""
    names = {
        kind: (f"parallelism.data_parallel_{kind}_degree", f"training.data_parallel_{kind}_degree")
        for kind in ("replicate", "shard")
    }
    replicas = settings.number(*names["replicate"], default=1.0)
    shards = settings.number(*names["shard"], default=-1.0)
    others = degrees["tp"] * degrees["pp"] * degrees["cp"]
    world = settings.overruled("world_size", None)
    if shards < 0.0:
        if world is None:
            settings.reading.asks.append("--gpus")
            return nan
        shards = world / others / replicas
    elif world is None:
        settings.take("world_size", replicas * shards * others, *names["shard"])
    elif world != replicas * shards * others:
        # What the command line gives rules over the file's shards; a launcher doesn't.
        if not ({"tp", "pp", "cp"} & settings.overrides.keys() or launched(settings) is None):
            wrong = f"tp {degrees['tp']:g} * pp {degrees['pp']:g} * cp {degrees['cp']:g} * "
            wrong += f"{replicas:g} replicas * {shards:g} shards"
            settings.reading.faults.append(
                f"{settings.reading.file}: {launched(settings)} GPUs aren't {wrong}"
            )
            return nan
        shards = world / others / replicas
    if not shards.is_integer():
        settings.reading.faults.append(
            f"{settings.reading.file}: {world:g} GPUs are no multiple of tp {degrees['tp']:g} * pp "
            f"{degrees['pp']:g} * cp {degrees['cp']:g} * {replicas:g} replicas"
        )
        return nan
    whole, stage = shards * degrees["cp"] > 1.0, 0.0
    if whole:
        name = "parallelism.fsdp_reshard_after_forward"
        text = settings.text(name, default="default").lower()
        # Layers are resharded after their forward, but not in a pipeline unless that is said.
        stage = 2.0 if text == "never" or (text == "default" and degrees["pp"] > 1.0) else 3.0
    why = "weights sharded over what is left of the GPUs"
    settings.take("zero_stage", stage, *names["shard"], why=why)
    if whole and replicas > 1.0:
        settings.take("hsdp_shard_size", shards * degrees["cp"], *names["replicate"])
    return replicas * shards


def launched(settings: Settings) -> str | None:
    """Return the launcher's number of GPUs, where the command line gives none."""
    override = settings.overrides.get("world_size")
    return override.text if override and not override.flag else None


def _batch(
    settings: Settings, degrees: Mapping[str, float], dp: float, generation: Generation
) -> None:
    python = generation is PYTHON
    length_key = "training.max_context_length" if python else "training.seq_len"
    why = "sequences of 2,048 tokens"
    length = settings.take_number("sequence_length", length_key, usual=2048.0, why=why)
    if python:
        key = "training.num_tokens_per_microbatch_per_dp_rank"
        local = settings.number(key, default=16384.0) / length
        micro = max(local, 1.0)
        settings.take("micro_batch_size", micro, key, why=f"micro-batches of {micro:g}")
        step = settings.number("training.num_tokens_per_train_step", default=-1.0)
        chunks = settings.number("parallelism.num_pp_microbatches", default=1.0)
        batch = step / length if step > 0.0 else micro * dp * chunks
        key, why = "training.num_tokens_per_train_step", "one micro-batch a rank"
    else:
        keys: tuple[str, ...] = ("training.local_batch_size", "training.batch_size")
        local = settings.number(*keys, default=8.0)
        micro = local
        if degrees["pp"] > 1.0:
            keys = ("parallelism.pipeline_parallel_microbatch_size",)
            micro = settings.number(*keys, default=1.0)
        settings.take("micro_batch_size", micro, *keys, why=f"micro-batches of {micro:g}")
        batch = settings.number("training.global_batch_size", default=-1.0)
        if batch < 0.0:
            batch = local * dp
        key, why = "training.global_batch_size", "a global batch of the ranks' local ones"
    settings.take("global_batch_size", batch, key, why=why)
    steps = settings.number("training.steps", default=10000.0)
    tokens = steps * batch * length
    settings.take("training_tokens", tokens, "training.steps", why="10,000 steps")


def _pipeline(settings: Settings, pp: float, layers: float) -> None:
    if pp == 1.0:
        settings.take("virtual_pipeline_size", 1.0)
        return
    text = settings.text("parallelism.pipeline_parallel_schedule", default="1F1B")
    setting = settings.find("parallelism.pipeline_parallel_schedule")
    theirs = terms_of(KEYS)["schedules"]
    schedule = next(
        (name for name, spelling in theirs.items() if spelling.lower() == text.lower()), None
    )
    if schedule is None:
        if setting is not None and "schedule" not in settings.overrides:
            wrong = f"isn't modelled; {', '.join(theirs.values())} are"
            settings.reading.fault(setting, text, wrong)
        return
    settings.take("schedule", schedule, "parallelism.pipeline_parallel_schedule", why="1F1B")
    less = [f"parallelism.pipeline_parallel_{end}_stage_less_layers" for end in ("first", "last")]
    ends = [settings.number(key, default=1.0) for key in less]
    each = settings.number("parallelism.pipeline_parallel_layers_per_stage")
    folded = schedule in FOLDED
    chunks = 2.0 if schedule == "interleaved" or folded else 1.0
    if each > 0.0 and schedule == "interleaved":
        chunks = max((layers + sum(ends)) / pp // each, 1.0)
    if not folded:
        settings.take(
            "virtual_pipeline_size", chunks, "parallelism.pipeline_parallel_layers_per_stage"
        )
    why = "a layer fewer in the first and the last stage"
    for name, end, key in zip(("embedding", "head"), ends, less, strict=True):
        settings.take(f"{name}_layer_weight", end, key, why=why)


RECOMPUTE_MODES = ("none", "full", "selective")


def _recompute(settings: Settings, layers: float, generation: Generation) -> None:
    stated = settings.find("activation_checkpoint.mode")
    mode = generation.recompute if stated is None else str(stated.value).lower()
    option = settings.text(
        "activation_checkpoint.selective_ac_option", default=generation.selective
    )
    early = settings.text("activation_checkpoint.early_stop", default="false").lower() == "true"
    names = ("activation_checkpoint.selective_ac_option", "activation_checkpoint.mode")
    if mode not in RECOMPUTE_MODES:
        if stated is not None and "recompute" not in settings.overrides:
            known = f"{', '.join(RECOMPUTE_MODES)} are; give --recompute per_op, say"
            settings.reading.fault(stated, mode, f"isn't modelled; {known}")
    elif mode == "none":
        settings.take("recompute", "none", names[1])
    elif mode == "full":
        settings.take("recompute", "full_early_stop" if early else "full", names[1])
    elif option == "op":
        settings.take("recompute", "per_op", *names, why="selective recomputation, op by op")
    elif option.isdigit() and int(option) > 0:
        _every(settings, layers, int(option), names)
    elif setting := settings.find(*names):
        settings.reading.fault(setting, option, "'op' or a whole number")


def _every(settings: Settings, layers: float, every: int, names: tuple[str, str]) -> None:
    """Take that every so many-th layer of a rank is recomputed whole.

    As many layers are as of ``block``, and as much is kept: which ones they are changes neither.
    """
    said = "second" if every == 2 else f"{every}th"
    why = f"every {said} layer recomputed"
    count = layers / _chunks(settings) // every
    if every == 1 or count == 0.0:
        settings.take("recompute", "full" if every == 1 else "none", *names, why=why)
        return
    settings.take("recompute", "block", *names, why=why, note=why)
    settings.take("recompute_layers", count, *names, why=why, note=why)


def _chunks(settings: Settings) -> float:
    """Return how many chunks of layers a rank has."""
    given = settings.reading.given
    chunks = settings.overruled("virtual_pipeline_size", None)
    if chunks is None:
        folded = given.get("schedule") in FOLDED
        chunks = 2.0 if folded else given.get("virtual_pipeline_size", 1.0)
    return max(chunks, 1.0)


def _software(settings: Settings, degrees: Mapping[str, float]) -> list[str]:
    """Return the options of the framework."""
    options = []
    on = settings.text("compile.enable", "training.compile", default="false").lower() == "true"
    parts = settings.find("compile.components")
    components = parts.value if parts is not None else ["model", "loss"]
    if not on or "model" not in components:
        options.append("eager")
        settings.reading.defaults.append("not compiled")
    elif "loss" not in components:
        settings.take("loss", "eager", "compile.components", note="the loss isn't compiled")
    together = "parallelism.enable_async_tensor_parallel", "compile.enable_async_tensor_parallel"
    if any(name in settings for name in together) and degrees["tp"] > 1.0 and on:
        options.append("async_tp")
    if "training.deterministic" in settings:
        options.append("deterministic")
    chunks = settings.take_number("loss_chunks", "loss.num_chunks")
    if chunks > 1.0 and "loss" not in settings.reading.given:
        settings.take("loss", "chunked", "loss.num_chunks")
    for name in ("optimizer_offload", "parameter_offload"):
        settings.take_switch(name, "training.enable_cpu_offload")
    return options


def _precision(settings: Settings, options: list[str]) -> None:
    """Take the precision of GEMMs and of states."""
    setting = settings.find("model.converters")
    listed = setting.value if setting is not None else []
    listed = listed.split(",") if isinstance(listed, str) else listed
    named = [str(converter).strip().rpartition(".")[2] for converter in listed]
    if "float8" in named or "float8.enable_float8_linear" in settings:
        settings.take("precision", "fp8_current", "model.converters")
        recipe = settings.text("float8.recipe_name", default="tensorwise")
        if recipe.startswith("rowwise"):
            options.append("rowwise_fp8")
        else:
            settings.take_switch("gathered_bytes", "float8.enable_fsdp_float8_all_gather")
        if "float8.moe_fqns_prototype" in settings:
            options.append("fp8_experts")
        settings.find("float8.filter_fqns")
    elif {"mx", "mxfp8"} & {*named}:
        settings.take("precision", "mxfp8", "model.converters")
    else:
        settings.take("precision", "bf16", "training.mixed_precision_param")
    held = settings.text("training.dtype", default="float32")
    if held == "bfloat16":
        settings.take("recipe", "bf16_adam", "training.dtype")
    name = settings.text("optimizer.name", default="AdamW")
    if name not in ("AdamW", "Adam"):
        settings.reading.notes.append(f"optimizer.name {name}: states of AdamW are counted")


# A Python configuration's calls, as the settings of the TOML file are called.
def of_python(settings: list[Setting]) -> Iterator[Setting]:
    """Yield a Python configuration's settings under the names of the TOML file."""
    for setting in settings:
        last = setting.name.rpartition(".")[2]
        text = str(setting.value)
        if isinstance(setting.value, Unread):
            name = re.sub(r"^model_spec\.", "model.", setting.name)
            yield Setting(name.replace(f"{PLACE}0", "flavor"), setting.value, setting.location)
        elif setting.name == f"model_spec.{FROM}":
            yield Setting("model.name", text.rpartition(".")[2], setting.location)
        elif setting.name in (f"model_spec.{PLACE}0", "model_spec.flavor"):
            yield Setting("model.flavor", text, setting.location)
        elif setting.name == "model_spec.attn_backend":
            yield Setting("model.attn_backend", text, setting.location)
        elif setting.name == "model_spec.converters":
            converters = terms_of(KEYS)["converters"].items()
            kinds = [
                named
                for called in setting.value
                for start, named in converters
                if str(called).startswith(start)
            ]
            yield Setting("model.converters", kinds, setting.location)
        elif setting.name == f"activation_checkpoint.{CALLED}":
            mode = terms_of(KEYS)["activation_checkpoint"].get(text.partition(".")[0], text)
            yield Setting("activation_checkpoint.mode", mode, setting.location)
        elif setting.name == f"loss.{CALLED}":
            if text.startswith(CHUNKED) and "loss.num_chunks" not in {
                entry.name for entry in settings
            }:
                yield Setting("loss.num_chunks", 8, setting.location)
        elif last not in (CALLED, FROM) and not last.startswith(PLACE):
            yield setting
