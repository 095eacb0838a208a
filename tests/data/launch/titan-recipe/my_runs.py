"""torchtitan of 2026: no TOML any more; a run is a function that returns a Trainer.Config."""

from torchtitan.components.loss import ChunkedLossWrapper, CrossEntropyLoss
from torchtitan.config import CompileConfig, ParallelismConfig, TrainingConfig
from torchtitan.distributed.activation_checkpoint import FullAC
from torchtitan.models.llama3 import model_registry
from torchtitan.trainer import Trainer

SEQ = 8192


def llama3_70b_fsdp32_tp8() -> Trainer.Config:
    return Trainer.Config(
        model_spec=model_registry("70B", attn_backend="flex"),
        training=TrainingConfig(
            num_tokens_per_microbatch_per_dp_rank=2 * SEQ,
            max_context_length=SEQ,
            steps=3000,
        ),
        parallelism=ParallelismConfig(
            data_parallel_shard_degree=32,
            tensor_parallel_degree=8,
        ),
        compile=CompileConfig(enable=True),
        activation_checkpoint=FullAC.Config(),
        loss=ChunkedLossWrapper.Config(loss_fn=CrossEntropyLoss.Config(global_vocab_size=128256)),
    )


def llama3_70b_selective_eager() -> Trainer.Config:
    return Trainer.Config(
        model_spec=model_registry("70B"),
        training=TrainingConfig(
            num_tokens_per_microbatch_per_dp_rank=4096, max_context_length=4096
        ),
        parallelism=ParallelismConfig(tensor_parallel_degree=8),
    )


def llama3_70b_cp4() -> Trainer.Config:
    config = llama3_70b_fsdp32_tp8()
    config.parallelism.context_parallel_degree = 4
    config.parallelism.data_parallel_shard_degree = 8
    return config
