"""Record one case of tensor-parallel overlap: a linear layer, forward and backward, profiled.

    torchrun --nproc-per-node TP workload.py FOLDER CASE

FOLDER holds the case's tp_comm_overlap_cfg.yaml, as `sweeps tune` writes it; each rank leaves its
trace there. CASE is the case's name, which says the layer. model.json beside this file has the
layer's sizes. It needs PyTorch, Transformer Engine and a GPU for each rank.
"""

import json
import os
import sys
from pathlib import Path

# Transformer Engine reads these when it is imported; a linear layer runs no attention.
os.environ.setdefault("NVTE_FLASH_ATTN", "1")
os.environ.setdefault("NVTE_FUSED_ATTN", "0")

import torch
import torch.distributed as dist
import transformer_engine.pytorch as te

WARMUP, STEPS = 5, 5
COLUMN = ("qkv", "fc1")


def read_layers(path: Path) -> dict:
    """Read the layers of a configuration: `layer:`, then `  key: value` lines."""
    layers: dict = {}
    for line in path.read_text().splitlines():
        text = line.split("#")[0].rstrip()
        if not text or text == "{}":
            continue
        key, _, value = (part.strip() for part in text.partition(":"))
        if not value:
            layers[key] = own = {}
        else:
            own[key] = int(value) if value.lstrip("-").isdigit() else value
    return layers


def flags_of(operator: str, layers: dict) -> dict:
    """Return what of a layer overlaps, as its module takes it."""
    methods = {name.partition("_")[2]: own["method"] for name, own in layers.items()}
    if operator not in COLUMN:
        return {"ub_overlap_rs": "fprop" in methods, "ub_overlap_ag": "dgrad" in methods}
    scattered = methods.get("dgrad", "bulk") != "bulk"
    return {
        "ub_overlap_ag": "fprop" in methods,
        "ub_overlap_rs_dgrad": scattered,
        "ub_bulk_dgrad": "dgrad" in methods and not scattered,
        "ub_bulk_wgrad": "wgrad" in methods,
    }


def main(folder: Path, case: str) -> None:
    """Run a case, and leave this rank's trace."""
    sizes = json.loads((Path(__file__).parent / "model.json").read_text())
    ranks, rank = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
    meant, operator = case.split("_")[:2]
    if meant != f"tp{ranks}":
        sys.exit(f"{case} is for {meant[2:]} ranks, and {ranks} run")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    layers = read_layers(folder / "tp_comm_overlap_cfg.yaml")
    tokens, hidden, inner = sizes["tokens"], sizes["hidden_size"], sizes[operator]
    eight_bits = sizes["precision"] == "fp8"
    if layers:
        te.initialize_ub(
            [tokens, hidden], ranks, use_fp8=eight_bits, dtype=torch.bfloat16, ub_cfgs=layers,
            bootstrap_backend="nccl",
        )  # fmt: skip
    shared = {
        "bias": False, "sequence_parallel": ranks > 1, "tp_group": dist.group.WORLD,
        "tp_size": ranks, "params_dtype": torch.bfloat16, "ub_name": operator,
        **(flags_of(operator, layers) if layers else {}),
    }  # fmt: skip
    if operator in COLUMN:
        layer = te.LayerNormLinear(hidden, inner, parallel_mode="column", **shared)
        shape = (tokens // ranks, 1, hidden)
    else:
        layer = te.Linear(inner, hidden, parallel_mode="row", **shared)
        shape = (tokens, 1, inner // ranks)
    given = torch.randn(shape, dtype=torch.bfloat16, device="cuda", requires_grad=True)
    schedule = torch.profiler.schedule(wait=0, warmup=WARMUP, active=STEPS)
    with torch.profiler.profile(record_shapes=True, schedule=schedule) as profiler:
        for _ in range(WARMUP + STEPS):
            with te.fp8_autocast(enabled=eight_bits):
                result = layer(given)
            result.backward(torch.ones_like(result))
            torch.cuda.synchronize()
            profiler.step()
    profiler.export_chrome_trace(str(folder / f"rank{rank}.pt.trace.json"))
    if layers:
        te.destroy_ub()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
