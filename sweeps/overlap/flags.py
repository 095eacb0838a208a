"""The flags of ``sweeps overlap``: what quantity each one gives."""

from __future__ import annotations

# Flags, the quantity, and what it is; in groups, as help shows them.
GROUPS: dict[str, tuple[tuple[tuple[str, ...], str, str], ...]] = {
    "durations": (
        (("--compute", "--compute-time"), "compute_time", "Computation by itself."),
        (
            ("--comm", "--communication", "--communication-time"),
            "communication_time",
            "Communication by itself.",
        ),
        (("--efficiency",), "overlap_efficiency", "Share of the shorter one that hides: 0 to 1."),
        (("--measured",), "overlapped_time", "Both at once, measured: says what of them overlaps."),
    ),
    "gradients": (
        (("--buckets",), "gradient_buckets", "Buckets of gradients."),
        (("--first-bucket-share",), "first_bucket_share", "The first one's share of all."),
        (("--bucket-size",), "bucket_capacity", "Bytes of a bucket.  [PyTorch: 25MiB]"),
        (("--first-bucket-size",), "first_bucket_capacity", "Of the first.  [PyTorch: 1MiB]"),
        (("--gradients",), "reduced_elements", "Gradients of a rank, in Megatron's buckets."),
        (("--dp",), "dp", "Data-parallel ranks, for Megatron's buckets."),
        (("--micro-batches",), "micro_batches", "Micro-batches of a step."),
        (("--backward-share",), "backward_share", "Of a micro-batch's computation.  [2/3]"),
    ),
    "layers": (
        (("--layers",), "layers", "Layers."),
        (("--prefetched-layers",), "prefetched_layers", "Layers gathered ahead."),
        (("--prefetch-elements",), "prefetched_elements", "ZeRO-3's window of weights."),
        (("--layer-elements",), "layer_elements", "Weights of a layer."),
        (("--reduction-share",), "reduction_share", "Of a backward's communication."),
        (("--independent-share",), "independent_share", "Of a layer: what needn't wait."),
    ),
    "products and collectives in chunks": (
        (("--ranks", "--tp", "--N"), "ranks", "Ranks of the ring."),
        (("--splits",), "splits", "Parts of a pipelined reduce_scatter."),
        (("--last-split",), "last_split_time", "Communication of the last part."),
        (("--sums",), "partial_sum_time", "Adding up at a ring's end."),
        (("--sms",), "sms", "Streaming multiprocessors of the GPU."),
        (("--num-sm",), "num_sm", "Those that communication takes."),
    ),
    "pipelines": (
        (("--forward",), "stage_forward_time", "A stage's forward of a micro-batch."),
        (("--backward",), "stage_backward_time", "A stage's backward of a micro-batch."),
        (("--p2p",), "p2p_time", "One transfer between stages."),
        (("--pp",), "pp", "Stages."),
        (("--virtual-stages",), "virtual_stages", "Virtual stages of a rank."),
    ),
    "messages": (
        (("--messages",), "messages", "Messages."),
        (("--message-latency",), "message_latency", "Of each, beyond its bytes."),
        (("--transfer",), "transfer_time", "All messages' bytes by themselves."),
        (("--copy",), "copy_time", "Copying into one message and out of it."),
    ),
    "communication from its bytes": (
        (("--M", "--message-bytes"), "message_bytes", "Bytes of the collective."),
        (("--latency",), "latency", "Of a ring's step."),
        (("--bandwidth",), "bandwidth", "Of a rank's link, at most."),
        (("--sm-bandwidth",), "sm_bandwidth", "That one multiprocessor sends."),
        (("--half-sms",), "half_bandwidth_sms", "Multiprocessors for half of the bandwidth."),
        (("--copy-engine",), "copy_engine_bandwidth", "That copy engines send."),
    ),
    "computation as a matrix product in waves of tiles": (
        (("--rows",), "matmul_rows", "Rows (tokens)."),
        (("--columns",), "matmul_columns", "Columns (output features)."),
        (("--depth",), "matmul_depth", "Depth (input features)."),
        (("--tile-rows",), "tile_rows", "Of a tile.  [128]"),
        (("--tile-columns",), "tile_columns", "Of a tile.  [256]"),
        (("--tile-time",), "tile_time", "Of a tile on one multiprocessor."),
        (("--launch",), "launch_time", "Of starting a kernel.  [0]"),
        (("--element-bytes",), "activation_bytes", "Of an element.  [2]"),
        (("--memory-bandwidth",), "memory_bandwidth", "Of the GPU's memory."),
        (("--matmul-flops",), "best_matmul_flops", "Rate of the best product."),
    ),
}
FLAGS = tuple(flag for group in GROUPS.values() for flag in group)


def flag_of(quantity: str) -> str:
    """Return the first flag of a quantity; its name where it has none."""
    return next((flags[0] for flags, name, _ in FLAGS if name == quantity), quantity)
