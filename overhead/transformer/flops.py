"""Floating-point operations of one token, forward and in training, by parts.

Matrix products alone count, a multiplication and an addition as two.  Scores and values are
counted twice over: in full, as published utilisations are (PaLM, Megatron-LM), and without what a
causal mask hides.  What is recomputed counts in neither.
"""

from __future__ import annotations

import numpy as np

from overhead.formula import formula
from overhead.quantity import Array
from overhead.transformer.quantities import CHOWDHERY, MISTRAL, NARAYANAN

APPENDIX = (NARAYANAN, "appendix on floating-point operations")
PALM = (CHOWDHERY, "appendix B")
WINDOW = (MISTRAL, "section 2, sliding window attention")
FULL = "masked scores count as computed"
CAUSAL = "a token attends to itself and to earlier ones: half of the scores if there is no window"
BACKWARD = "the backward pass costs twice the forward pass"


@formula(
    source=PALM[0], where=PALM[1], assumes=("embedding, norms and biases cost no matrix product",)
)
def active_weights(
    layers: Array,
    attention_weights: Array,
    dense_mlp_layers: Array,
    mlp_weights: Array,
    moe_layers: Array,
    router_weights: Array,
    shared_expert_weights: Array,
    experts_per_token: Array,
    expert_weights: Array,
) -> Array:
    """Weights in the layers whose matrix products one token goes through."""
    routed = router_weights + shared_expert_weights + experts_per_token * expert_weights
    return layers * attention_weights + dense_mlp_layers * mlp_weights + moe_layers * routed


@formula(source=APPENDIX[0], where=APPENDIX[1])
def weight_flops_per_token(active_weights: Array) -> Array:
    """Forward FLOPs of one token by the layers' weights."""
    return 2.0 * active_weights


@formula(
    source=APPENDIX[0],
    where=APPENDIX[1],
    assumes=("every token's logits are computed, also where the embedding's table is shared",),
)
def logits_flops_per_token(hidden_size: Array, vocabulary_size: Array) -> Array:
    """Forward FLOPs of one token by the output layer."""
    return 2.0 * hidden_size * vocabulary_size


def _span(sequence_length: Array, window: Array) -> Array:
    return np.where(window > 0.0, np.minimum(sequence_length, window), sequence_length)


@formula(source=WINDOW[0], where=WINDOW[1], assumes=("the window holds in every layer", FULL))
def attention_span(sequence_length: Array, window: Array) -> Array:
    """Tokens that one token's scores span, masked ones counted."""
    return _span(sequence_length, window)


@formula(
    source=WINDOW[0],
    where=f"{WINDOW[1]}, summed over the sequence",
    assumes=("the window holds in every layer", CAUSAL),
)
def causal_attention_span(sequence_length: Array, window: Array) -> Array:
    """Mean number of tokens that one token attends to, masked ones not counted."""
    span = _span(sequence_length, window)
    return np.asarray(span * (1.0 - span / (2.0 * sequence_length)))


@formula(source=APPENDIX[0], where=APPENDIX[1], assumes=(FULL,))
def attention_flops_per_token(
    layers: Array,
    attention_span: Array,
    heads: Array,
    query_head_size: Array,
    value_head_size: Array,
) -> Array:
    """Forward FLOPs of one token by scores and values, masked ones counted."""
    return 2.0 * layers * attention_span * heads * (query_head_size + value_head_size)


@formula(source=APPENDIX[0], where=APPENDIX[1], assumes=(CAUSAL,))
def causal_attention_flops_per_token(
    layers: Array,
    causal_attention_span: Array,
    heads: Array,
    query_head_size: Array,
    value_head_size: Array,
) -> Array:
    """Forward FLOPs of one token by scores and values, masked ones not counted."""
    return 2.0 * layers * causal_attention_span * heads * (query_head_size + value_head_size)


@formula(source=APPENDIX[0], where=APPENDIX[1], assumes=(FULL,))
def forward_flops_per_token(
    weight_flops_per_token: Array, attention_flops_per_token: Array, logits_flops_per_token: Array
) -> Array:
    """Forward FLOPs of one token, masked scores counted."""
    return weight_flops_per_token + attention_flops_per_token + logits_flops_per_token


@formula(source=APPENDIX[0], where=APPENDIX[1], assumes=(CAUSAL,))
def causal_forward_flops_per_token(
    weight_flops_per_token: Array,
    causal_attention_flops_per_token: Array,
    logits_flops_per_token: Array,
) -> Array:
    """Forward FLOPs of one token, masked scores not counted."""
    return weight_flops_per_token + causal_attention_flops_per_token + logits_flops_per_token


@formula(source=PALM[0], where=PALM[1], assumes=(BACKWARD, "nothing is recomputed", FULL))
def model_flops_per_token(forward_flops_per_token: Array) -> Array:
    """FLOPs of one token's training, masked scores counted."""
    return 3.0 * forward_flops_per_token


@formula(source=PALM[0], where=PALM[1], assumes=(BACKWARD, "nothing is recomputed", CAUSAL))
def causal_model_flops_per_token(causal_forward_flops_per_token: Array) -> Array:
    """FLOPs of one token's training, masked scores not counted."""
    return 3.0 * causal_forward_flops_per_token


@formula(source=NARAYANAN, where="section 5.1")
def tokens_per_step(global_batch: Array, sequence_length: Array) -> Array:
    """Tokens in a step's global batch."""
    return global_batch * sequence_length


@formula(source=PALM[0], where=PALM[1])
def model_flops(model_flops_per_token: Array, tokens_per_step: Array) -> Array:
    """FLOPs of a step, masked scores counted."""
    return model_flops_per_token * tokens_per_step


@formula(source=PALM[0], where=PALM[1])
def causal_model_flops(causal_model_flops_per_token: Array, tokens_per_step: Array) -> Array:
    """FLOPs of a step, masked scores not counted."""
    return causal_model_flops_per_token * tokens_per_step
