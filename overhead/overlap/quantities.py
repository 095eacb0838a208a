"""The vocabulary of overlap: durations, how work is cut, what runs at once, and what comes out."""

from __future__ import annotations

from overhead.quantity import define
from overhead.source import cite


def _named(base: str, name: str) -> str:
    return rf"{base}_{{\mathrm{{{name}}}}}"


def _time(name: str, mark: str, meaning: str) -> None:
    define(name, _named("t", mark), "s", meaning, minimum=0)


def _share(name: str, symbol: str, meaning: str) -> None:
    define(name, symbol, "1", meaning, minimum=0, maximum=1)


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
    define(_name, _named("M", _mark), "byte", _meaning, minimum=0, above=True)
define("reduced_elements", _named("E", "g"), "1", "gradients that a rank reduces", minimum=0)
define("bucket_elements", _named("E", "bk"), "1", "gradients of a bucket", minimum=0, above=True)
_share(
    "backward_share",
    _named(r"\beta", "bw"),
    "share of a micro-batch's computation that is its backward",
)
_time("overlap_window", "win", "computation during which gradients become ready to be reduced")

# How weights are gathered, and how layers follow one another.
_count("prefetched_layers", _named("w", "pre"), "layers whose weights are gathered ahead", 0)
define(
    "prefetched_elements", _named("E", "pre"), "1", "weights that are gathered ahead at most",
    minimum=0,
)  # fmt: skip
define("layer_elements", _named("E", "L"), "1", "weights of one layer", minimum=0, above=True)
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
    define(_name, _named("B", _mark), "byte s-1", _meaning, minimum=0, above=True)
define(
    "half_bandwidth_sms", r"k_{1/2}", "1",
    "streaming multiprocessors with which half of the bandwidth is reached", minimum=0,
)  # fmt: skip

# How a matrix product fills them, in waves of tiles.
for _name, _symbol, _meaning in (
    ("tile_rows", "m_t", "rows of the tile that one multiprocessor computes"),
    ("tile_columns", "n_t", "columns of the tile that one multiprocessor computes"),
):
    _count(_name, _symbol, _meaning)
_count("tiles", _named("N", "t"), "tiles of a matrix product", 0)
_count("waves", "W", "waves in which a product's tiles are computed", 0)
_share("wave_efficiency", r"\eta_W", "tiles of a product by those that its waves have room for")
_time("tile_time", "tile", "time in which one multiprocessor computes a tile")
_time("launch_time", "launch", "time that starting a kernel takes")
define("moved_bytes", _named("M", "mv"), "byte", "bytes that a product reads and writes", minimum=0)
_time("wave_matmul_time", "gemm", "time of a matrix product in whole waves of tiles")
_count("product_chunks", _named("n", "ch"), "chunks into which a product is cut")
_time("whole_product_time", "gemm,1", "time of a product that isn't cut, on all multiprocessors")
_time("chunk_product_time", "gemm,ch", "time of one chunk of a product")
for _name, _symbol, _meaning in (
    ("chunk_rows", _named("m", "ch"), "rows of one chunk of a product"),
    ("chunk_columns", _named("n'", "ch"), "columns of one chunk of a product"),
    (
        "decomposition_factor",
        _named(r"\delta", "ch"),
        "time of a cut product by a whole one's",
    ),
):
    define(_name, _symbol, "1", _meaning, minimum=0)

# Messages.
_count("messages", _named("n", "msg"), "messages into which the communication is cut")
define(
    "message_latency", _named(r"\alpha", "msg"), "s", "time that a message takes beyond its bytes",
    minimum=0,
)  # fmt: skip
_time("transfer_time", "tr", "time of all messages' bytes by themselves")
_time("copy_time", "copy", "time in which messages are copied into one and out of it")

# What comes out.
_time("overlapped_time", "ov", "time of computation and communication that overlap")
_time("sequential_time", "seq", "time of computation and communication one after the other")
_time("ideal_overlapped_time", "ideal", "time of the longer one: what overlap can reach at best")
# Differences, negative where what runs at once slows down: no domain.
for _name, _symbol, _units, _meaning in (
    ("hidden_time", _named("t", "hid"), "s", "time that overlap saves (negative: that it costs)"),
    ("exposed_time", _named("t", "exp"), "s", "time beyond that of the computation by itself"),
    (
        "overlap_ratio",
        _named("r", "ov"),
        "1",
        "overlap of the shorter duration (hidden time by it)",
    ),
    (
        "hidden_communication_share",
        _named("r", "comm"),
        "1",
        "overlap of the communication (hidden time by it)",
    ),
):
    define(_name, _symbol, _units, _meaning)
for _name, _mark, _meaning in (
    ("overlap_speedup", "ov", "speedup by overlap (sequential time by overlapped time)"),
    ("ideal_speedup", "ideal", "speedup at best (sequential time by the longer duration)"),
):
    define(_name, _named("S", _mark), "1", _meaning, minimum=0)
_share("communication_share", _named("f", "comm"), "communication by the sequential time")

# The publications that the formulas of overlap cite, by their keys.

DECOMPOSED = cite(
    "wang2023",
    "S. Wang et al., Overlap communication with dependent computation via decomposition in large "
    "deep learning models, ASPLOS, 2023",
    "doi:10.1145/3567955.3567959",
).key
ENGINE = cite(
    "transformerengine",
    "NVIDIA, Transformer Engine",
    "github.com/NVIDIA/TransformerEngine",
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
