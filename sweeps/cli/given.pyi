"""What a command's options give: of all commands, and what differs in some of them.

`PROOFS=write python -m pytest -n0 tests/test_stubs.py` writes this file.
"""

from collections.abc import Iterable, Mapping
from typing import Literal, TypedDict

Options = Mapping[str, object]
Folder = Literal["hardware_folder", "model_folder", "framework_folder"]

def texts_of(given: Options, names: Iterable[str]) -> dict[str, str | None]: ...

class OfFolders(TypedDict, total=False):
    framework_folder: tuple[str, ...]
    hardware_folder: tuple[str, ...]
    model_folder: tuple[str, ...]

class Given(OfFolders, total=False):
    activation_bytes: str | None
    algorithm: str | None
    as_csv: bool
    as_json: bool
    as_latex: bool
    asserts: tuple[str, ...]
    at: str | None
    attention_kernel: str | None
    backward_fraction: str | None
    bandwidth: str | None
    batch_size: str | None
    bound: str | None
    bucket_capacity: str | None
    budget: str | None
    capital_cost: str | None
    chunks: str | None
    classes: tuple[str, ...]
    clock_ratio: str | None
    collective: str | None
    combined: str | None
    command: str | None
    communication_time: str | None
    compress: bool
    compute_time: str | None
    context_parallel: str | None
    copy_engine_bandwidth: str | None
    copy_time: str | None
    cp: str | None
    cp_mechanism: str | None
    cp_overlap: str | None
    data_parallel: str | None
    days: str | None
    dense_layers: str | None
    dispatcher: str | None
    dp: str | None
    dp_mechanism: str | None
    dp_overlap: str | None
    dropout: str | None
    dry_run: bool
    efficiency_of: str | None
    element_bytes: str | None
    embedding_layer_weight: str | None
    energy_per_bit: str | None
    environment: str | None
    ep: str | None
    ep_mechanism: str | None
    ep_overlap: str | None
    etp: str | None
    expert_ffn_size: str | None
    expert_load_imbalance: str | None
    experts: str | None
    experts_per_token: str | None
    explain: str | None
    fabric: str | None
    ffn_size: str | None
    first_bucket_capacity: str | None
    first_bucket_fraction: str | None
    flags: str | None
    formulas: tuple[str, ...]
    fp8_scaling: str | None
    framework: str | None
    from_traces: str | None
    gated_mlp: str | None
    global_batch_size: str | None
    gpu_hour_price: str | None
    gpu_nic_bandwidth: str | None
    gpu_nic_energy_per_bit: str | None
    gpu_nic_latency: str | None
    gradient_buckets: str | None
    gradient_bytes: str | None
    grid: str | None
    half_bandwidth_sms: str | None
    hardware: str | None
    head_layer_weight: str | None
    head_size: str | None
    heads: str | None
    held: tuple[str, ...]
    hidden_size: str | None
    hops: str | None
    host_memory_capacity: str | None
    hsdp_shard_size: str | None
    include_last_step: bool
    independent_compute_fraction: str | None
    inter_bandwidth: str | None
    inter_efficiency: str | None
    inter_energy_per_bit: str | None
    inter_latency: str | None
    intra_bandwidth: str | None
    intra_efficiency: str | None
    intra_energy_per_bit: str | None
    intra_latency: str | None
    kind: str | None
    kv_heads: str | None
    last_split_time: str | None
    latency: str | None
    latency_per: str | None
    launch_files: tuple[str, ...]
    launch_time: str | None
    layer_elements: str | None
    layers: str | None
    link: str | None
    loss: str | None
    lost_nodes: int | None
    mask: str | None
    matmul_k: str | None
    matmul_m: str | None
    matmul_n: str | None
    max_memory: str
    max_num_sm: str | None
    max_token_len: str | None
    max_tp_size: str | None
    measured_plan: str | None
    mechanism: str | None
    memory_bandwidth: str | None
    memory_capacity: str | None
    memory_threshold: str
    mesh_dimensions: str | None
    mesh_nx: str | None
    mesh_ny: str | None
    mesh_nz: str | None
    message_bytes: str | None
    message_latency: str | None
    messages: bool | str | None
    micro_batch_size: str | None
    min_num_sm: str | None
    mode: Literal["full", "hta"]
    model: str | None
    model_name: str | None
    moe: bool
    nodes_per_pod: str | None
    num_experts: str | None
    num_micro_batches: str | None
    num_sm: str | None
    objective: str | None
    op: str | None
    operators: str | None
    optimizer_bytes: str | None
    output: str | None
    output_dir: str | None
    overlap_efficiency: str | None
    overlap_threshold: str | None
    overlapped_time: str | None
    oversubscription: str | None
    overwrite: bool
    p2p_time: str | None
    page: bool
    parameters: str | None
    partial_sum_time: str | None
    patterns: str | None
    peak_measured_matmul_flops: str | None
    phase_chunks: str | None
    pipeline: bool | None
    placement: Literal["out-of-place", "in-place", "both"]
    plot: bool | None
    pod_bandwidth: str | None
    pod_latency: str | None
    pod_oversubscription: str | None
    pp: str | None
    precision: str | None
    prefetched_elements: str | None
    prefetched_layers: str | None
    preset: str | None
    quantities: tuple[str, ...]
    rank_order: str | None
    recipe: str | None
    recompute: str | None
    recompute_layers: str | None
    reduced_elements: str | None
    reduction_cost: str | None
    reduction_fraction: str | None
    resume: bool
    rules: str | None
    save: str | None
    schedule: str | None
    scheduler: str | None
    script: bool
    search: str | None
    sensitivity: bool | str | None
    seq_length: str | None
    sequence_length: str | None
    sequence_parallel: str | None
    settings: tuple[str, ...]
    shared_ffn_size: str | None
    show: tuple[str, ...]
    showing: bool
    sizes: str | None
    sm_bandwidth: str | None
    sm_margin: bool
    sms: str | None
    software: str | None
    sources: tuple[str, ...]
    splits: str | None
    stage_backward_time: str | None
    stage_forward_time: str | None
    strict: bool
    style: str | None
    switching: str | None
    te_version: str | None
    tensor: str | None
    tensor_parallel: str | None
    tied_embeddings: str | None
    tile_columns: str | None
    tile_rows: str | None
    tile_time: str | None
    timeline: str | None
    timeout: str | None
    tokens: str | None
    tokens_per_step: str | None
    tolerance: str | None
    top: int | None
    topology: str | None
    tp: str | None
    tp_mechanism: str | None
    tp_overlap: str | None
    tp_size: str | None
    training_tokens: str | None
    transfer_time: str | None
    tree_algo: bool
    ulysses_ranks: str | None
    validate: str | None
    verbose: bool
    verifying: bool
    virtual_pipeline_size: str | None
    vocabulary_size: str | None
    wanted: tuple[str, ...]
    weight_bytes: str | None
    window: str | None
    wiring: str | None
    with_jobs: bool
    workers: int
    world_size: str | None
    write: str | None
    write_workload: str | None
    zero_stage: str | None

class Planned(Given, total=False):
    gpus_per_node: str | None
    nics_per_node: str | None
    nodes: str | None

class Hops(Given, total=False):
    spec: str | None

class Measured(Given, total=False):
    gpus_per_node: int | None
    nics_per_node: int | None
    nodes: int | None
    ranks: int | None
