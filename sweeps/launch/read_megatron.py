"""Megatron-LM's arguments as quantities: the plan, the batch, precision and software.

What isn't said is as Megatron-LM has it where nothing is said, at NVIDIA/Megatron-LM @d98e8a64dd:
megatron/training/arguments.py, megatron/core/transformer/transformer_config.py and
megatron/core/optimizer/optimizer_config.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from math import isfinite, isnan, nan

from overhead.memory.quantities import MODULES
from sweeps.launch.arguments import Settings, arguments
from sweeps.launch.read_megatron_model import read_model
from sweeps.launch.setting import Location, Setting
from sweeps.launch.shell import Word
from sweeps.launch.terms import MEGATRON, keys_of, terms_of
from sweeps.spec.catalog import load_framework

FORMAT = "Megatron-LM arguments"
VERSION = "Megatron-LM @d98e8a64dd"


def settings_of(words: Sequence[Word], file: str) -> Iterator[Setting]:
    """Yield a command line's arguments, with beginnings of names as argparse takes them."""
    known = keys_of(MEGATRON)
    for flag, values, line in arguments(words):
        starts = [name for name in known if name.startswith(flag)]
        name = starts[0] if flag not in known and len(starts) == 1 else flag
        # Nothing follows an argument that takes no value.
        value = "true" if name in known and not known[name].value else " ".join(values)
        yield Setting(name, value, Location(file, line))


def read_arguments(settings: Settings, world_size: float | None, *, padded: bool = True) -> None:
    """Take quantities from arguments; without a launcher's number of GPUs ask for it."""
    reading = settings.reading
    reading.version = VERSION
    degrees = {
        name: settings.number(f"--{long}-parallel-size", quantity=name, default=1.0)
        for name, long in (
            ("tp", "tensor-model"),
            ("pp", "pipeline-model"),
            ("cp", "context"),
            ("ep", "expert-model"),
        )
    }
    for name, long in (("tp", "tensor-model"), ("pp", "pipeline-model"), ("cp", "context")):
        settings.take(name, degrees[name], f"--{long}-parallel-size")
    read_model(settings, degrees["tp"], padded=padded)
    heads = reading.given.get("heads", 0.0)
    if heads and heads % degrees["tp"]:
        setting = settings.find("--tensor-model-parallel-size")
        if setting is not None and "tp" not in settings.overrides:
            reading.fault(setting, f"{degrees['tp']:g}", f"doesn't divide {heads:g} heads")
    _experts(settings, degrees)
    others = degrees["tp"] * degrees["pp"] * degrees["cp"]
    dp = nan if world_size is None else world_size / others
    _batch(settings, dp)
    _pipeline(settings, degrees["pp"])
    options = [*_sharding(settings, degrees, dp), *_overlap(settings, degrees)]
    options += [*_precision(settings), *_software(settings)]
    _recompute(settings)
    _offload(settings, degrees["pp"])
    names = dict.fromkeys(options)
    settings.take("framework", "+".join(("megatron-lm", *names)))
    settings.classify(keys_of(MEGATRON), _refusal)


def _refusal(setting: Setting) -> str:
    renamed = terms_of(MEGATRON)["renamed"]
    if setting.name in renamed:
        return f"no longer valid in Megatron-LM; {renamed[setting.name]}"
    return "models with several towers or kinds of layers can't be read from arguments"


def _experts(settings: Settings, degrees: Mapping[str, float]) -> None:
    if not settings.reading.given.get("experts"):
        return
    settings.take("ep", degrees["ep"], "--expert-model-parallel-size")
    why = "experts as tensor-parallel as tp"
    settings.take_number("etp", "--expert-tensor-parallel-size", usual=degrees["tp"], why=why)
    kind = settings.text("--moe-token-dispatcher-type", default="allgather")
    settings.find("--moe-flex-dispatcher-backend")
    if kind == "flex" or "--moe-enable-deepep" in settings:
        settings.take(
            "dispatcher", "deduplicated", "--moe-token-dispatcher-type", "--moe-enable-deepep"
        )
    elif kind == "alltoall":
        settings.take("dispatcher", "all_to_all", "--moe-token-dispatcher-type")
    elif degrees["ep"] > 1.0 and "dispatcher" not in settings.overrides:
        setting = settings.find("--moe-token-dispatcher-type")
        where = setting.location if setting else Location(settings.reading.file)
        settings.reading.faults.append(
            f"{where}: --moe-token-dispatcher-type {kind}: isn't modelled (Megatron-LM's default "
            "where it isn't given); give --dispatcher all_to_all for what is nearest"
        )
    settings.take_number(
        "ep_comm_sms",
        "--moe-deepep-num-sms",
        "--moe-hybridep-num-sms",
        "--moe-flex-dispatcher-num-sms",
    )
    balanced = settings.take_switch("expert_load_imbalance", "--moe-router-force-load-balancing")
    if not balanced and "--moe-pad-expert-input-to-capacity" in settings:
        factor = settings.number("--moe-expert-capacity-factor", whole=False)
        settings.take("expert_load_imbalance", max(factor, 1.0), "--moe-expert-capacity-factor")
    settings.find("--moe-expert-capacity-factor")


def _batch(settings: Settings, dp: float) -> None:
    reading = settings.reading
    micro = settings.take_number("micro_batch_size", "--micro-batch-size")
    if isnan(micro) and "--micro-batch-size" not in settings.by_name:
        reading.asks.append("--micro-batch-size")
    whole = settings.number("--global-batch-size", quantity="global_batch_size")
    if isnan(whole) and "--global-batch-size" not in settings.by_name:
        whole = micro * dp
        settings.take("global_batch_size", whole, why="global batch of one micro-batch a rank")
    else:
        settings.take("global_batch_size", whole, "--global-batch-size")
    if ramp := settings.find("--rampup-batch-size"):
        reading.notes.append(f"{ramp}: the batch at the end of it is taken")
    length = reading.given.get("sequence_length", nan)
    iterations = settings.number("--train-iters", quantity="training_tokens")
    samples = settings.number("--train-samples", quantity="training_tokens")
    if isfinite(iterations):
        settings.take("training_tokens", iterations * whole * length, "--train-iters")
    elif isfinite(samples):
        settings.take("training_tokens", samples * length, "--train-samples")


def _pipeline(settings: Settings, pp: float) -> None:
    layers = settings.reading.given.get("layers", 0.0)
    layers += settings.reading.given.get("separate_moe_layers", 0.0)
    each = settings.number("--num-layers-per-virtual-pipeline-stage")
    chunks = settings.number("--num-virtual-stages-per-pipeline-rank", default=1.0)
    names = (
        "--num-layers-per-virtual-pipeline-stage",
        "--num-virtual-stages-per-pipeline-rank",
        "--pipeline-model-parallel-layout",
    )
    if isfinite(each) and each:
        chunks = max(layers / pp / each, 1.0)
    if text := settings.text("--pipeline-model-parallel-layout"):
        chunks = max(len(laid_out(text).split("|")) / pp, 1.0)
        settings.reading.notes.append("stages as even as they can be; the layout may differ")
    if pp == 1.0:
        chunks = 1.0
    if not chunks.is_integer():
        setting = settings.find(*names)
        assert setting is not None
        wrong = f"{layers:g} layers in {pp:g} stages don't make whole chunks"
        settings.reading.fault(setting, str(setting.value), wrong)
        return
    settings.take("virtual_pipeline_size", chunks, *names)
    if pp > 1.0:
        schedule = "interleaved" if chunks > 1.0 else "one_f_one_b"
        settings.take("schedule", schedule, *names)
    settings.take_switch("embedding_layer_weight", "--account-for-embedding-in-pipeline-split")
    settings.take_switch("head_layer_weight", "--account-for-loss-in-pipeline-split")
    _end_stages(settings, layers, pp)


def _end_stages(settings: Settings, layers: float, pp: float) -> None:
    """Take stages at the ends with fewer layers as what the embedding and the loss count."""
    flags = {
        "embedding_layer_weight": "--decoder-first-pipeline-num-layers",
        "head_layer_weight": "--decoder-last-pipeline-num-layers",
    }
    counts = {name: settings.number(flag) for name, flag in flags.items()}
    stated = {name: count for name, count in counts.items() if isfinite(count)}
    if not stated or pp <= len(stated):
        return
    middle = (layers - sum(stated.values())) / (pp - len(stated))
    for name, count in stated.items():
        if (fewer := middle - count) >= 0.0 and fewer.is_integer():
            settings.take(name, fewer, flags[name])
        else:
            settings.used.discard(flags[name])


_REPEATED = re.compile(r"\(([^()]*)\)\*(\d+)|([A-Za-z])\*(\d+)")
LONGEST = 10_000


def laid_out(text: str) -> str:
    """Return a layout of stages with its repetitions written out, such as ``E|(t|)*2L``."""
    for _ in range(20):
        match = _REPEATED.search(text)
        if match is None or len(text) > LONGEST:
            break
        count = min(int(match[2] or match[4]), LONGEST)
        text = text[: match.start()] + (match[1] or match[3] or "") * count + text[match.end() :]
    return text


def _sharding(settings: Settings, degrees: Mapping[str, float], dp: float) -> Iterator[str]:
    """Take how states are sharded, and yield options of the framework."""
    if settings.take_switch("zero_stage", "--use-torch-fsdp2", 3.0):
        settings.take_switch("keep_gathered", "--torch-fsdp2-no-reshard-after-forward")
    elif "--use-megatron-fsdp" in settings:
        strategy = settings.text("--data-parallel-sharding-strategy", default="optim_grads_params")
        settings.take(
            "zero_stage",
            terms_of(MEGATRON)["sharding"].get(strategy, 3.0),
            "--data-parallel-sharding-strategy",
            "--use-megatron-fsdp",
        )
        yield "fsdp"
    elif settings.by_name.keys() & {"--deepspeed", "--zero-stage"}:
        _deepspeed(settings)
    else:
        why = "no --use-distributed-optimizer: ZeRO 0"
        settings.take_flag("zero_stage", "--use-distributed-optimizer", why)
        settings.find("--data-parallel-sharding-strategy")
    instances = settings.number("--num-distributed-optimizer-instances", default=1.0)
    if instances > 1.0 and isfinite(dp):
        size = dp * degrees["cp"] / instances
        settings.take("hsdp_shard_size", size, "--num-distributed-optimizer-instances")
    if degrees["cp"] > 1.0:
        kind = settings.text("--cp-comm-type", default="p2p").split()[0]
        way = terms_of(MEGATRON)["cp_comm_type"].get(kind, "ring")
        settings.take("context_parallel", way, "--cp-comm-type", why="context by p2p")
        if way == "mixed":
            sizes = settings.text("--hierarchical-context-parallel-sizes").split()
            if sizes and sizes[0].isdigit():
                settings.take(
                    "ulysses_ranks", float(sizes[0]), "--hierarchical-context-parallel-sizes"
                )
    on = "--sequence-parallel" in settings and degrees["tp"] > 1.0
    why = "no sequence parallelism" if degrees["tp"] > 1.0 else ""
    settings.take("sequence_parallel", float(on), "--sequence-parallel", why=why)


def _deepspeed(settings: Settings) -> None:
    """Take the stage of a fork of Megatron-LM that DeepSpeed runs, or ask for it."""
    stage = settings.number("--zero-stage", quantity="zero_stage")
    if isnan(stage):
        wrong = "its configuration shards, and isn't read here; give --zero-stage"
        settings.reading.fault(settings.by_name["--deepspeed"], "", wrong)
        return
    settings.take("zero_stage", stage, "--zero-stage")
    settings.find("--deepspeed")


def _overlap(settings: Settings, degrees: Mapping[str, float]) -> Iterator[str]:
    """Yield the options of the framework that say what overlaps, or doesn't."""
    if "--tp-comm-overlap" not in settings and degrees["tp"] > 1.0:
        yield "serial_tp"
    gradients, weights = "--overlap-grad-reduce" in settings, "--overlap-param-gather" in settings
    if not gradients:
        yield "serial_dp"
    elif not weights and settings.reading.given.get("zero_stage", 0.0) > 0.0:
        whole = load_framework("megatron-lm").figures["dp_overlap"].value
        settings.take(
            "dp_overlap",
            0.5 * whole,
            "--overlap-grad-reduce",
            note="no --overlap-param-gather: half of what both overlap",
        )
    if "--overlap-moe-expert-parallel-comm" in settings:
        yield "ep_overlap"
    unfused = "--no-gradient-accumulation-fusion"
    settings.take_switch("gradient_accumulation_fusion", unfused, 0.0)
    settings.take_switch("unfused_operations", "--moe-router-fusion", 0.0)


def _precision(settings: Settings) -> Iterator[str]:
    """Take the precision of GEMMs and of states, and yield options of the framework."""
    reading = settings.reading
    widths = [name for name in ("--bf16", "--fp16") if name in settings]
    if len(widths) == 2:
        both = settings.by_name["--bf16"]
        reading.fault(both, "", "stands beside --fp16; one of both")
    width = widths[0][2:] if widths else "fp32"
    if settings.text("--fp4-format"):
        settings.take("precision", "fp4", "--fp4-format")
        settings.find("--fp4-recipe")
    elif settings.text("--fp8-format"):
        recipe = settings.text("--fp8-recipe", default="delayed")
        precision = terms_of(MEGATRON)["fp8_recipe"].get(recipe, "fp8")
        settings.take("precision", precision, "--fp8-recipe", "--fp8-format")
        if recipe == "blockwise":
            settings.take("fp8_scaling", "block", "--fp8-recipe")
    else:
        settings.take(
            "precision", width, *widths, why="neither --bf16 nor --fp16: single precision"
        )
    yield from _states(settings, width)
    if "--fp8-param-gather" in settings and settings.text("--fp8-format"):
        yield "fp8_parameters"
    if "--fp8-dot-product-attention" in settings:
        yield "fp8_attention"
    if "--first-last-layers-bf16" in settings:
        ends = ("--num-layers-at-start-in-bf16", "--num-layers-at-end-in-bf16")
        layers = sum(settings.number(end, default=1.0) for end in ends)
        settings.take("bf16_layers", layers, "--first-last-layers-bf16")


def _states(settings: Settings, width: str) -> Iterator[str]:
    """Take the bytes of gradients and of the optimizer's states."""
    if width == "fp32":
        return
    aware = "--use-precision-aware-optimizer" in settings
    parts = {
        name: settings.text(name, default="fp32")
        for name in ("--main-params-dtype", "--exp-avg-dtype", "--exp-avg-sq-dtype")
    }
    states = sum(_bytes(text) if aware else 4.0 for text in parts.values())
    optimizer = settings.text("--optimizer", default="adam")
    if optimizer in ("sgd", "lion"):
        states -= 4.0
    if width == "fp16":
        settings.take("recipe", "megatron_fp16", "--fp16")
        settings.take_switch("gradient_bytes", "--accumulate-allreduce-grads-in-fp32", 4.0)
        return
    halved = (
        "--grad-reduce-in-bf16" in settings or _bytes(settings.text("--main-grads-dtype")) < 4.0
    )
    settings.find("--accumulate-allreduce-grads-in-fp32")
    gradients = "gradients in 4 bytes (no --grad-reduce-in-bf16)"
    if "muon" in optimizer:
        yield "muon"
        if not halved:
            yield "fp32_gradients"
            settings.reading.defaults.append(gradients)
    elif (halved, states) == (True, 8.0) and optimizer == "adam":
        yield "bf16_moments"
    elif (halved, states) == (False, 12.0):
        yield "fp32_gradients"
        settings.reading.defaults.append(gradients)
    elif (halved, states) != (True, 12.0):
        settings.take(
            "gradient_bytes",
            2.0 if halved else 4.0,
            "--grad-reduce-in-bf16",
            why="no --grad-reduce-in-bf16: gradients in 4 bytes",
        )
        settings.take("optimizer_bytes", states, "--exp-avg-dtype", "--optimizer")


def _bytes(dtype: str) -> float:
    """Return the bytes of a number of a type, such as ``bf16``."""
    return float(terms_of(MEGATRON)["bytes"].get(dtype, 4.0))


def _software(settings: Settings) -> Iterator[str]:
    """Take kernels and graphs, and yield options of the framework."""
    backend = settings.text("--attention-backend", default="auto").rpartition(".")[2]
    if kernel := terms_of(MEGATRON)["attention_backend"].get(backend):
        version = settings.text("--flash-attention-version")
        if backend == "flash" and version in ("2", "3"):
            kernel = f"flash_{version}"
        settings.take("attention_kernel", kernel, "--attention-backend")
    else:
        settings.take_switch("attention_kernel", "--use-flash-attn", "flash_2")
    yield from _loss(settings)
    if "--deterministic-mode" in settings:
        yield "deterministic"
    graphs = settings.text("--cuda-graph-impl", default="none")
    modules = settings.text("--cuda-graph-modules", "--cuda-graph-scope")
    words = re.findall(r"\w+", modules)
    if graphs != "none" or "--enable-cuda-graph" in settings:
        options = terms_of(MEGATRON)["cuda_graph_modules"]
        yield from [options[word] for word in words if word in options] or ["cuda_graphs"]


def _loss(settings: Settings) -> Iterator[str]:
    """Take the loss, and yield the framework's option where it is Transformer Engine's."""
    names = "--cross-entropy-fusion-impl", "--cross-entropy-loss-fusion"
    kind = settings.text(names[0], default="native")
    if names[1] not in settings:
        return
    if kind == "te":
        settings.find(names[1])
        yield "fused_loss"
    elif kind == "native":
        settings.take("loss", "vocab_parallel", *names, note="fewer kernels aren't modelled")
    elif kind == "linear":
        settings.take("loss", "cut_cross_entropy", *names)
        settings.take("loss_recomputation", 1.0, *names, note="logits are computed again")
    else:
        settings.reading.fault(settings.by_name[names[0]], kind, "must be native, te or linear")


def _recompute(settings: Settings) -> None:
    kind = settings.text("--recompute-granularity")
    if not kind and "--recompute-activations" in settings:
        kind = "selective"
    names = ("--recompute-granularity", "--recompute-activations")
    if not kind:
        settings.take("recompute", "none", *names, why="no recomputation")
        return
    if kind == "selective":
        chosen = re.findall(r"\w+", settings.text("--recompute-modules", default="core_attn"))
        settings.take("recompute", "selective", *names)
        for module in MODULES:
            chosen_flag = float(module in chosen)
            settings.take(
                f"recompute_{module}", chosen_flag, "--recompute-modules", why="core_attn alone"
            )
        return
    method = settings.text("--recompute-method")
    count = settings.number("--recompute-num-layers", quantity="recompute_layers", default=1.0)
    if method not in ("uniform", "block"):
        setting = settings.find(*names)
        if setting is not None and "recompute" not in settings.overrides:
            settings.reading.fault(setting, kind, "needs --recompute-method uniform or block")
        return
    whole = method == "uniform" and count == 1.0
    settings.take("recompute", "full" if whole else method, "--recompute-method")
    if not whole:
        settings.take("recompute_layers", count, "--recompute-num-layers")


def _offload(settings: Settings, pp: float) -> None:
    if "--optimizer-cpu-offload" in settings:
        share = settings.number("--optimizer-offload-fraction", default=1.0, whole=False)
        settings.take(
            "optimizer_offload", share, "--optimizer-offload-fraction", "--optimizer-cpu-offload"
        )
        settings.take_switch("host_update_overlap", "--overlap-cpu-optimizer-d2h-h2d")
    if "--cpu-offloading" in settings:
        layers = settings.reading.given.get("layers", 0.0)
        count = settings.number("--cpu-offloading-num-layers", default=0.0)
        share = min(count / max(layers / pp, 1.0), 1.0)
        settings.take("activation_offload", share, "--cpu-offloading-num-layers")
