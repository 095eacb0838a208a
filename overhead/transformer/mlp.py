"""One layer's MLP: dense, or a mixture of experts with its router and shared experts."""

from __future__ import annotations

import numpy as np

from overhead.formula import formula
from overhead.quantity import Array
from overhead.transformer.sources import DEEPSEEK_V3, MIXTRAL, VASWANI

__all__ = [
    "active_moe_parameters",
    "dense_mlp_layers",
    "expert_parameters",
    "expert_weights",
    "mlp_parameters",
    "mlp_weights",
    "moe_layers",
    "moe_parameters",
    "router_parameters",
    "router_weights",
    "shared_expert_parameters",
    "shared_expert_weights",
]

PLAIN = (VASWANI, "section 3.3; gated: Shazeer 2020, section 2")
EXPERTS = (MIXTRAL, "section 2.1")
SHARED = (DEEPSEEK_V3, "section 2.1.2")


@formula(
    returns="mlp_weights",
    expression="(2 + gated)*hidden_size*ffn_size",
    source=PLAIN[0],
    where=PLAIN[1],
)
def mlp_weights(gated: Array, hidden_size: Array, ffn_size: Array) -> Array:
    """Weights of one dense layer's MLP that matrix products use."""
    return (2.0 + gated) * hidden_size * ffn_size


@formula(
    returns="mlp_parameters",
    expression="mlp_weights + biases*((1 + gated)*ffn_size + hidden_size)",
    source=PLAIN[0],
    where=PLAIN[1],
)
def mlp_parameters(
    mlp_weights: Array, biases: Array, gated: Array, ffn_size: Array, hidden_size: Array
) -> Array:
    """Parameters of one dense layer's MLP."""
    return mlp_weights + biases * ((1.0 + gated) * ffn_size + hidden_size)


@formula(
    returns="expert_weights",
    expression="(2 + gated)*hidden_size*expert_ffn_size",
    source=EXPERTS[0],
    where=EXPERTS[1],
)
def expert_weights(gated: Array, hidden_size: Array, expert_ffn_size: Array) -> Array:
    """Weights of one routed expert that matrix products use."""
    return (2.0 + gated) * hidden_size * expert_ffn_size


@formula(
    returns="expert_parameters",
    expression="expert_weights + biases*((1 + gated)*expert_ffn_size + hidden_size)",
    source=EXPERTS[0],
    where=EXPERTS[1],
)
def expert_parameters(
    expert_weights: Array,
    biases: Array,
    gated: Array,
    expert_ffn_size: Array,
    hidden_size: Array,
) -> Array:
    """Parameters of one routed expert."""
    return expert_weights + biases * ((1.0 + gated) * expert_ffn_size + hidden_size)


@formula(
    returns="shared_expert_weights",
    expression="(2 + gated)*hidden_size*shared_ffn_size",
    source=SHARED[0],
    where=SHARED[1],
)
def shared_expert_weights(gated: Array, hidden_size: Array, shared_ffn_size: Array) -> Array:
    """Weights of one layer's shared experts that matrix products use."""
    return (2.0 + gated) * hidden_size * shared_ffn_size


@formula(
    returns="shared_expert_parameters",
    expression="shared_expert_weights + where(shared_ffn_size > 0,"
    " biases*((1 + gated)*shared_ffn_size + hidden_size), 0)",
    source=SHARED[0],
    where=SHARED[1],
    assumes=("the shared experts are one MLP of their widths together",),
)
def shared_expert_parameters(
    shared_expert_weights: Array,
    biases: Array,
    gated: Array,
    shared_ffn_size: Array,
    hidden_size: Array,
) -> Array:
    """Parameters of one layer's shared experts; none where there are none."""
    bias = biases * ((1.0 + gated) * shared_ffn_size + hidden_size)
    return shared_expert_weights + np.where(shared_ffn_size > 0.0, bias, 0.0)


@formula(
    returns="router_weights",
    expression="hidden_size*experts",
    source=EXPERTS[0],
    where=EXPERTS[1],
    ufunc=np.multiply,
)
def router_weights(hidden_size: Array, experts: Array) -> Array:
    """Weights of one layer's router."""
    return hidden_size * experts


@formula(
    returns="router_parameters",
    expression="router_weights + router_bias*experts",
    source=SHARED[0],
    where=f"{SHARED[1]}, bias for balancing the load",
)
def router_parameters(router_weights: Array, router_bias: Array, experts: Array) -> Array:
    """Parameters of one layer's router."""
    return router_weights + router_bias * experts


@formula(
    returns="moe_parameters",
    expression="experts*expert_parameters + router_parameters + shared_expert_parameters",
    source=SHARED[0],
    where=SHARED[1],
)
def moe_parameters(
    experts: Array,
    expert_parameters: Array,
    router_parameters: Array,
    shared_expert_parameters: Array,
) -> Array:
    """Parameters of one layer's mixture of experts."""
    return experts * expert_parameters + router_parameters + shared_expert_parameters


@formula(
    returns="active_moe_parameters",
    expression="experts_per_token*expert_parameters + router_parameters + shared_expert_parameters",
    source=EXPERTS[0],
    where=EXPERTS[1],
    assumes=("router and shared experts count as active",),
)
def active_moe_parameters(
    experts_per_token: Array,
    expert_parameters: Array,
    router_parameters: Array,
    shared_expert_parameters: Array,
) -> Array:
    """Parameters of one layer's mixture of experts that one token meets."""
    return experts_per_token * expert_parameters + router_parameters + shared_expert_parameters


@formula(
    returns="moe_layers",
    expression="where(experts > 0, floor(maximum(layers - dense_layers, 0)/moe_every), 0)",
    source=SHARED[0],
    where="section 4.2; one of every few layers: Hugging Face transformers, decoder_sparse_step",
    assumes=("after the first dense layers, the last of every moe_every layers has experts",),
)
def moe_layers(layers: Array, dense_layers: Array, moe_every: Array, experts: Array) -> Array:
    """Layers whose MLP is a mixture of experts."""
    routed = np.floor(np.maximum(layers - dense_layers, 0.0) / moe_every)
    return np.where(experts > 0.0, routed, 0.0)


@formula(
    returns="dense_mlp_layers",
    expression="maximum(layers - moe_layers, 0)",
    source=SHARED[0],
    where="section 4.2",
)
def dense_mlp_layers(layers: Array, moe_layers: Array) -> Array:
    """Layers whose MLP is dense."""
    return np.maximum(layers - moe_layers, 0.0)
