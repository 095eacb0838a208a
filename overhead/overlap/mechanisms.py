"""The vocabulary of overlap, and the mechanisms by name: what each takes, and why it shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from overhead.arrays import xp
from overhead.collectives.algorithm import Requirement
from overhead.compute.quantities import RATE
from overhead.quantity import amount, define
from overhead.source import cite


def _named(base: str, name: str) -> str:
    return rf"{base}_{{\mathrm{{{name}}}}}"


def _time(name: str, mark: str, meaning: str) -> None:
    amount(name, _named("t", mark), "s", meaning)


def _share(name: str, symbol: str, meaning: str) -> None:
    amount(name, symbol, "1", meaning, maximum=1)


def _count(name: str, symbol: str, meaning: str, minimum: int = 1) -> None:
    define(name, symbol, "1", meaning, minimum=minimum, integer=True)


# What overlaps.
_time("compute_time", "comp", "time of the computation by itself")
_time("communication_time", "comm", "time of the communication by itself")
_share(
    "overlap_efficiency",
    _named(r"\eta", "ov"),
    "share of the shorter duration that hides behind the longer",
)

# How gradients are cut into buckets.
_count("gradient_buckets", _named("n", "bk"), "buckets in which gradients are reduced")
_share(
    "first_bucket_share",
    _named(r"\phi", "bk"),
    "share of computation and communication that the first bucket has",
)
for _name, _mark, _meaning in (
    ("bucket_capacity", "bk", "bytes that fill a bucket of gradients"),
    ("first_bucket_capacity", "bk,1", "bytes that fill the first bucket of gradients"),
):
    amount(_name, _named("M", _mark), "byte", _meaning, above=True)
amount("reduced_elements", _named("E", "g"), "1", "gradients that a rank reduces")
amount("bucket_elements", _named("E", "bk"), "1", "gradients of a bucket", above=True)
_share(
    "backward_share",
    _named(r"\beta", "bw"),
    "share of a micro-batch's computation that is its backward",
)
_time("overlap_window", "win", "computation during which gradients become ready to be reduced")

# How weights are gathered, and how layers follow one another.
_count("prefetched_layers", _named("w", "pre"), "layers whose weights are gathered ahead", 0)
amount("prefetched_elements", _named("E", "pre"), "1", "weights that are gathered ahead at most")
amount("layer_elements", _named("E", "L"), "1", "weights of one layer", above=True)
_share(
    "reduction_share",
    _named(r"\rho", "rs"),
    "share of the communication that reduces gradients; the rest gathers weights",
)
_share(
    "independent_share",
    _named("u", "ind"),
    "share of a layer's computation that doesn't wait for the communication before it",
)

# How a matrix product and its collective are cut.
_count("splits", _named("q", "s"), "parts into which a product is split, each sent when it is done")
_time("last_split_time", "last", "time of the last part's communication")
_time("partial_sum_time", "sum", "time in which received partial results are added up at the end")

# What runs on the GPU's multiprocessors.
_count("sms", _named("S", "SM"), "streaming multiprocessors of a GPU")
_count("num_sm", _named("k", "SM"), "streaming multiprocessors that communication takes", 0)
_count("free_sms", _named("S'", "SM"), "streaming multiprocessors that communication leaves")
_time("carved_compute_time", "comp,k", "time of the computation on what communication leaves")
for _name, _mark, _meaning in (
    ("sm_bandwidth", "SM", "bytes a second that one streaming multiprocessor sends"),
    ("copy_engine_bandwidth", "CE", "bytes a second that the copy engines send"),
    ("transfer_bandwidth", "tr", "bytes a second that a rank sends"),
):
    amount(_name, _named("B", _mark), "byte s-1", _meaning, above=True)
amount("half_bandwidth_sms", r"k_{1/2}", "1",
       "streaming multiprocessors with which half of the bandwidth is reached")  # fmt: skip

# How a matrix product fills them, in waves of tiles.
_count("tile_rows", "m_t", "rows of the tile that one multiprocessor computes")
_count("tile_columns", "n_t", "columns of the tile that one multiprocessor computes")
_count("tiles", _named("N", "t"), "tiles of a matrix product", 0)
_count("waves", "W", "waves in which a product's tiles are computed", 0)
_share("wave_efficiency", r"\eta_W", "tiles of a product by those that its waves have room for")
_time("tile_time", "tile", "time in which one multiprocessor computes a tile")
_time("launch_time", "launch", "time that starting a kernel takes")
amount("moved_bytes", _named("M", "mv"), "byte", "bytes that a product reads and writes")
_time("wave_matmul_time", "gemm", "time of a matrix product in whole waves of tiles")
_count("product_chunks", _named("n", "ch"), "chunks into which a product is cut")
_time("whole_product_time", "gemm,1", "time of a product that isn't cut, on all multiprocessors")
_time("chunk_product_time", "gemm,ch", "time of one chunk of a product")
amount("chunk_rows", _named("m", "ch"), "1", "rows of one chunk of a product")
amount("chunk_columns", _named("n'", "ch"), "1", "columns of one chunk of a product")
amount(
    "decomposition_factor", _named(r"\delta", "ch"), "1", "time of a cut product by a whole one's"
)

# The same with a choice among tiles.
amount("burst_matmul_flops", _named("F", "burst"), RATE, "rate of matrix products so short that "
       "the limit of the GPU's power doesn't slow them down", above=True)  # fmt: skip
for _name, _symbol, _meaning in (
    ("sm_load_bandwidth", _named("B", "load"), "bytes a second that one multiprocessor reads"),
    (
        "burst_memory_bandwidth",
        _named("B", "burst"),
        "bytes a second of products that memory bounds",
    ),
    ("gather_sm_bandwidth", _named("B", "SM,g"), "bytes a second that a multiprocessor gathers"),
    ("scatter_sm_bandwidth", _named("B", "SM,s"), "bytes a second that a multiprocessor scatters"),
    ("sum_bandwidth", _named("B", "sum"), "bytes a second that adding up partial results moves"),
    ("summing_bandwidth", _named("B", "+"), "bytes a second at which partial results are added up"),
):
    amount(_name, _symbol, "byte s-1", _meaning, above=True)
_share("userbuffers_share", _named("f", "UB"), "share of a link's rate that userbuffers reach")
define("burst_ratio", r"\varphi", "1", "rate of short matrix products by that of long runs, which "
       "the limit of the GPU's power bounds", minimum=1)  # fmt: skip
amount("tile_depth_overhead", "K_0", "1", "depth that starting and ending a tile is worth")
amount(
    "last_wave_share", "w", "1", "share of a whole wave's time that the part of a wave beyond takes"
)
define("tile_sharpness", "p", "1", "how sharply the slower one of operations and loads bounds a "
       "tile", minimum=1)  # fmt: skip
_count("products_at_once", "G", "equal matrix products that run side by side")
_count("pieces_at_once", _named("G", "ch"), "pieces of a product that run side by side")
for _side in (64, 128, 256):
    _count(f"tile_side_{_side}", _named("m", str(_side)), f"a side of a tile: {_side}")
_time("tile_product_time", "a,b", "time of a product with one tile, launch and power left out")
_time("burst_product_time", "burst", "time of a product with its best tile, launch left out")
_time("confined_product_time", "conf", "time of a product on multiprocessors that are left")
_time("piece_time", "piece", "time of one piece of a product by itself")
_time("pieces_at_once_time", "pieces", "time of the pieces of a product that run side by side")
_time("piece_gap", "gap", "time between a product's pieces")

# Messages.
_count("messages", _named("n", "msg"), "messages into which the communication is cut")
amount("message_latency", _named(r"\alpha", "msg"), "s",
       "time that a message takes beyond its bytes")  # fmt: skip
_time("transfer_time", "tr", "time of all messages' bytes by themselves")
_time("copy_time", "copy", "time in which messages are copied into one and out of it")

# What comes out.
_time("overlapped_time", "ov", "time of computation and communication that overlap")
_time("sequential_time", "seq", "time of computation and communication one after the other")
_time("ideal_overlapped_time", "ideal", "time of the longer one: what overlap can reach at best")
# Differences, negative where what runs at once slows down: no domain.
define("hidden_time", _named("t", "hid"), "s", "time that overlap saves (negative: that it costs)")
define("exposed_time", _named("t", "exp"), "s", "time beyond that of the computation by itself")
define(
    "overlap_ratio", _named("r", "ov"), "1", "overlap of the shorter duration (hidden time by it)"
)
define(
    "hidden_communication_share",
    _named("r", "comm"),
    "1",
    "overlap of the communication (hidden time by it)",
)
for _name, _mark, _meaning in (
    ("overlap_speedup", "ov", "speedup by overlap (sequential time by overlapped time)"),
    ("ideal_speedup", "ideal", "speedup at best (sequential time by the longer duration)"),
):
    amount(_name, _named("S", _mark), "1", _meaning)
_share("communication_share", _named("f", "comm"), "communication by the sequential time")

# The publications that the formulas of overlap cite, by their keys.

DECOMPOSED = cite(
    "wang2023",
    "S. Wang et al., Overlap communication with dependent computation via decomposition in large "
    "deep learning models, ASPLOS, 2023",
    "doi:10.1145/3567955.3567959",
).key
ENGINE = cite(
    "transformerengine", "NVIDIA, Transformer Engine", "github.com/NVIDIA/TransformerEngine"
).key
BUCKETS = cite(
    "li2020",
    "S. Li et al., PyTorch distributed: experiences on accelerating data parallel training, VLDB, "
    "2020",
    "arXiv:2006.15704",
).key
FSDP = cite(
    "zhao2023",
    "Y. Zhao et al., PyTorch FSDP: experiences on scaling fully sharded data parallel, VLDB, 2023",
    "arXiv:2304.11277",
).key
DEEPSPEED = cite("deepspeed", "Microsoft, DeepSpeed", "github.com/deepspeedai/DeepSpeed").key
MEGATRON = cite("megatron", "NVIDIA, Megatron-LM", "github.com/NVIDIA/Megatron-LM").key
TILES = cite(
    "nvidiamatmul",
    "NVIDIA, Matrix multiplication background user's guide",
    "docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication",
).key


# The mechanisms by name: what each takes, what it takes by default, why what it shows shows.

BOTH = ("compute_time", "communication_time")


@dataclass(frozen=True, slots=True)
class Mechanism:
    """A way in which computation and communication overlap: a value of the label ``mechanism``."""

    name: str  # Its name
    title: str  # What overlaps with what
    takes: tuple[str, ...]  # The quantities that its time needs
    exposed: str  # Why some of the communication shows
    # What holds of them where they aren't given
    defaults: Mapping[str, float] = field(default_factory=dict)
    # Whether the time is at least the longer duration and at most both together
    bounded: bool = True


_MECHANISMS = (
    Mechanism(
        "two_durations",
        "two durations with an efficiency",
        (*BOTH, "overlap_efficiency"),
        "what the efficiency leaves, and what is longer than the computation",
        {"overlap_efficiency": 1.0},
    ),
    Mechanism(
        "ddp_buckets",
        "gradients reduced in buckets behind the backward",
        (*BOTH, "gradient_buckets", "first_bucket_share"),
        "the last bucket's gradients are ready only when the backward is done",
        {"gradient_buckets": 25.0},
    ),
    Mechanism(
        "fsdp_prefetch",
        "a layer's weights gathered behind the one before it",
        (*BOTH, "layers", "prefetched_layers"),
        "the first layer waits for its weights",
        {"layers": 32.0, "prefetched_layers": 1.0},
    ),
    Mechanism(
        "fsdp_backward",
        "weights gathered ahead and gradients scattered behind, in a backward",
        (*BOTH, "layers", "reduction_share", "prefetched_layers"),
        "the first layer waits for its weights, and the last one's gradients come at the end",
        {"layers": 32.0, "reduction_share": 0.5, "prefetched_layers": 1.0},
    ),
    Mechanism(
        "zero3_prefetch",
        "weights gathered ahead as far as a window of elements goes",
        (*BOTH, "layers", "prefetched_layers"),
        "the first layer waits for its weights",
        {"layers": 32.0, "prefetched_elements": 5e7},
    ),
    Mechanism(
        "layer_by_layer",
        "a layer's all_reduce behind the next one's computation",
        (*BOTH, "layers", "independent_share"),
        "the last layer has no next one, and what depends on the all_reduce waits for it",
        {"layers": 32.0, "independent_share": 0.0},
    ),
    Mechanism(
        "gradient_accumulation",
        "gradients of several micro-batches reduced behind the last one's backward",
        (*BOTH, "micro_batches", "backward_share", "gradient_buckets"),
        "only the last micro-batch's backward has gradients to reduce",
        {"micro_batches": 8.0, "backward_share": 2 / 3, "gradient_buckets": 25.0},
    ),
    Mechanism(
        "ring_exchange",
        "an all_gather round a ring behind the product of the chunks that are in",
        (*BOTH, "ranks"),
        "the last chunk that comes in is still to be multiplied",
        {"ranks": 8.0},
    ),
    Mechanism(
        "ring_exchange_aggregate",
        "the same, two chunks multiplied at a time",
        (*BOTH, "ranks"),
        "nothing is multiplied until a neighbour's chunk is in",
        {"ranks": 8.0},
    ),
    Mechanism(
        "reduce_scatter_ring",
        "a reduce_scatter round a ring behind the product of the next chunk",
        (*BOTH, "ranks", "partial_sum_time"),
        "the first chunk is still to be multiplied, and the sums come at the end",
        {"ranks": 8.0, "partial_sum_time": 0.0},
    ),
    Mechanism(
        "reduce_scatter_pipeline",
        "a product in parts, each reduced and scattered behind the next one",
        (*BOTH, "splits", "last_split_time"),
        "the last part has no next one",
        {"splits": 4.0},
    ),
    Mechanism(
        "bulk_margin",
        "a whole collective beside a product that keeps off its multiprocessors",
        (*BOTH, "sms", "num_sm"),
        "the product has fewer multiprocessors all of the time",
        {"sms": 132.0, "num_sm": 16.0},
        bounded=False,
    ),
    Mechanism(
        "bulk_shared",
        "a whole collective beside a product that gets its multiprocessors afterwards",
        (*BOTH, "sms", "num_sm"),
        "the product has fewer multiprocessors while communication runs",
        {"sms": 132.0, "num_sm": 16.0},
    ),
    Mechanism(
        "bulk_queued",
        "a collective behind a product that fills the GPU before it can start",
        BOTH,
        "the collective finds no multiprocessor free until the product is done",
    ),
    Mechanism(
        "pipeline",
        "transfers between pipeline stages behind other micro-batches",
        (
            "stage_forward_time", "stage_backward_time", "p2p_time", "pp", "micro_batches",
            "virtual_stages",
        ),
        "the pipeline fills and drains, and plain 1F1B waits for nearly each micro-batch's",
        {"pp": 8.0, "micro_batches": 8.0, "virtual_stages": 1.0},
    ),
    Mechanism(
        "fused_messages",
        "many small messages fused into one",
        ("compute_time", "messages", "message_latency", "transfer_time", "copy_time"),
        "the one message starts when all of its parts are there",
        {"copy_time": 0.0},
        bounded=False,
    ),
)  # fmt: skip
MECHANISMS: dict[str, Mechanism] = {one.name: one for one in _MECHANISMS}

# Labels that one mechanism heeds, and that mechanism.
HEEDED = {"efficiency_of": "two_durations", "schedule": "pipeline"}

# What the way in which a duration or a count comes about takes besides, and where it is from.
ASSUMED: dict[tuple[str, str], dict[str, tuple[float, str]]] = {
    ("buckets", "sized"): {
        "bucket_capacity": (25 * 2.0**20, "PyTorch's default"),
        "first_bucket_capacity": (2.0**20, "PyTorch's default"),
    },
    ("compute", "waves"): {
        "tile_rows": (128.0, "a usual tile"),
        "tile_columns": (256.0, "a usual tile"),
        "launch_time": (0.0, "kernels start while others run"),
        "activation_bytes": (2.0, "16 bit"),
        "sms": (132.0, "an H100 SXM's"),
        "num_sm": (16.0, "the default"),
    },
    ("communication", "sms"): {"num_sm": (16.0, "the default")},
}

# Rounding of what was measured.
SLACK = 1e-9
# What must hold for a mechanism, of what it takes.
EVEN_RANKS = Requirement(
    "ranks_odd",
    "two chunks at a time need an even number of ranks",
    lambda ranks: (ranks % 2.0 == 0.0) | (ranks <= 1.0),
)
A_MULTIPROCESSOR_LEFT = Requirement(
    "no_multiprocessor_left",
    "communication must leave a multiprocessor: num_sm below sms",
    lambda num_sm, sms: num_sm < sms,
)
WHOLE_ROUNDS = Requirement(
    "micro_batches_not_multiple_of_stages",
    "interleaving needs a multiple of the stages as micro-batches",
    lambda virtual_stages, micro_batches, pp: (virtual_stages <= 1.0) | (micro_batches % pp == 0.0),
)
ONE_VIRTUAL_STAGE = Requirement(
    "virtual_stages_need_interleaving",
    "other schedules have one virtual stage a rank",
    lambda virtual_stages: virtual_stages <= 1.0,
)
LONG_ENOUGH = Requirement(
    "shorter_than_possible",
    "both at once can't be shorter than the longer of them",
    lambda overlapped_time, ideal_overlapped_time: (
        ~xp.asarray(overlapped_time < ideal_overlapped_time * (1.0 - SLACK))
    ),
)
REQUIREMENTS = (
    EVEN_RANKS, A_MULTIPROCESSOR_LEFT, WHOLE_ROUNDS, ONE_VIRTUAL_STAGE, LONG_ENOUGH,
)  # fmt: skip


def requirements(labels: Mapping[str, str], *, measured: bool) -> tuple[Requirement, ...]:
    """Return what must hold of a mechanism, and of a time that was measured."""
    mechanism = labels["mechanism"]
    found: list[Requirement] = []
    if mechanism == "ring_exchange_aggregate":
        found.append(EVEN_RANKS)
    if mechanism.startswith("bulk"):
        found.append(A_MULTIPROCESSOR_LEFT)
    if mechanism == "pipeline":
        interleaved = labels.get("schedule") == "interleaved"
        found.append(WHOLE_ROUNDS if interleaved else ONE_VIRTUAL_STAGE)
    return (*found, LONG_ENOUGH) if measured else tuple(found)


# What every mechanism gives.
OUTPUTS = (
    "overlapped_time",
    "sequential_time",
    "ideal_overlapped_time",
    "hidden_time",
    "exposed_time",
    "overlap_ratio",
    "hidden_communication_share",
    "overlap_speedup",
    "ideal_speedup",
    "communication_share",
)
