"""A layer as what it is made of: GEMMs, norms, and what it keeps.  All else is a sum over them.

A kind of mixer or of feed-forward is a function from a model's sizes to a `Part`, and one to what
it keeps for its backward.  Its parameters, those of a tensor-parallel rank and of its adapters, and
the bytes that it keeps and makes again follow alike for every kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from operator import add
from typing import Any, NamedTuple, Unpack

from overhead.arrays import xp
from overhead.formula import Further, declare, parameters
from overhead.model.depends import inputs_of
from overhead.quantity import Array

# How tensor-parallel ranks share a GEMM's weights: not at all, by outputs, or by inputs.
WHOLE, COLUMNS, ROWS = "whole", "columns", "rows"
# How they share what is kept: as weights, or as the part between blocks.
HEADS, SEQUENCE = COLUMNS, "sequence"
# Modules that selective recomputation makes again, by the quantity that says whether it does.
AGAIN = (
    "recompute_core_attn",
    "recompute_layernorm",
    "recompute_mla_up_proj",
    "recompute_mlp",
    "recompute_moe",
    "recompute_moe_act",
    "recompute_shared_experts",
)


NEVER = 0.0


class Linear(NamedTuple):
    """A GEMM of a layer with its weights."""

    inputs: Array | float
    outputs: Array | float
    split: str = COLUMNS  # Where it isn't by columns its bias is whole on each rank
    bias: Array | float = NEVER  # 1 where its outputs have biases
    most: Array | float | None = None  # Ranks that can share it; more of them have copies
    groups: Array | float = 1.0  # Of inputs and outputs, each with weights of its own
    up: Array | float = NEVER  # 1 where it projects a latent vector up to heads
    keys: bool = False  # Whether it gives keys and values
    adapted: bool = True  # Whether it may have an adapter
    alone: Array | float = 1.0  # 0 where it has its input, and adapter, with the one before

    @property
    def weights(self) -> Array | float:
        """Its weights."""
        return self.inputs * self.outputs / self.groups

    def of_rank(self, size: Array | float, tp: Array) -> Array | float:
        """Return a rank's part of its weights or outputs."""
        if self.split == WHOLE:
            return size
        return size / (tp if self.most is None else xp.minimum(tp, self.most))


class Part(NamedTuple):
    """A mixer, or a feed-forward."""

    linears: tuple[Linear, ...]
    norms: tuple[Array | float, ...] = ()  # Parameters that no GEMM has, whole on each rank


class Kept(NamedTuple):
    """Something that a layer keeps of each token for its backward."""

    width: Array | float
    bytes: Array  # Of an element; 0 where nothing asks for it
    split: str = SEQUENCE
    again: tuple[str, ...] = ()  # Modules any of which makes it again
    most: Array | float | None = None  # Ranks that can share it

    def of_rank(self, tp: Array, sequence_shards: Array) -> Array | float:
        """Return bytes on a rank."""
        whole = self.width * self.bytes
        if self.split == WHOLE:
            return whole
        ranks = sequence_shards if self.split == SEQUENCE else tp
        return whole / (ranks if self.most is None else xp.minimum(ranks, self.most))


Sum = Callable[..., Any]
OF_KEPT = ("tp", "sequence_shards")


def kept_bytes(kept: Sequence[Kept], tp: Array, sequence_shards: Array) -> Any:
    """Bytes a token that a rank keeps."""
    return _total([tensor.of_rank(tp, sequence_shards) for tensor in kept])


def module_bytes(kept: Sequence[Kept], tp: Array, sequence_shards: Array, *again: Array) -> Any:
    """Bytes a token of these that the modules which are recomputed make again."""
    given, each = dict(zip(AGAIN, again, strict=True)), []
    for tensor in kept:
        if tensor.again:
            share = reduce(xp.maximum, [given[name] for name in tensor.again])
            each.append(share * tensor.of_rank(tp, sequence_shards))
    return _total(each)


def residual(
    hidden_size: Array,
    activation_bytes: Array,
    norm_kept_bytes: Array,
    input_bytes: Array,
    dropout: Array,
    mask_bytes: Array,
    residual_streams: Array,
    layer_norms: Array,
) -> tuple[Kept, ...]:
    """What surrounds a mixer or feed-forward: its norm's input and output, and dropout's mask.

    Several residuals are kept before it, and what it gives.  Both share the one norm of a layer
    that has no second; what a further norm gives joins the residual.
    """
    mixed = xp.where(residual_streams > 1.0, residual_streams + 1.0, 0.0)
    norms = layer_norms / 2.0
    return (
        Kept(norms * hidden_size, norm_kept_bytes),
        Kept(xp.minimum(norms, 1.0) * hidden_size, input_bytes, again=("recompute_layernorm",)),
        Kept(hidden_size, dropout * mask_bytes),
        Kept(mixed * hidden_size, activation_bytes),
    )


def _total(values: Sequence[Any]) -> Any:
    return reduce(add, values) if values else 0.0


def weights(part: Part) -> Array:
    """Weights of the GEMMs."""
    return _total([linear.weights for linear in part.linears])


def all_parameters(part: Part, weights: Array) -> Array:
    """Weights, biases and norms."""
    biases = [linear.bias * linear.outputs for linear in part.linears if linear.bias is not NEVER]
    return _total([weights, *biases, *part.norms])


def rank_parameters(part: Part, tp: Array) -> Array:
    """Weights, biases and norms of a rank."""
    each = [linear.of_rank(linear.weights, tp) for linear in part.linears]
    for linear in part.linears:
        if linear.bias is NEVER:
            continue
        outputs = linear.outputs if linear.split == ROWS else linear.of_rank(linear.outputs, tp)
        each.append(linear.bias * outputs)
    return _total([*each, *part.norms])


def rank_weights(part: Part, tp: Array) -> Array:
    """Weights of a rank."""
    return _total([linear.of_rank(linear.weights, tp) for linear in part.linears])


def _width(linears: Iterable[Linear], tp: Array, hidden_size: Array) -> Any:
    """Outputs of a rank's GEMMs as of one GEMM of hidden states that has as many weights."""
    # Summed up first: whole numbers, which have tiles, stay whole.
    each = [linear.of_rank(linear.weights, tp) for linear in linears]
    return _total(each) / hidden_size if each else 0.0


def first_width(part: Part, tp: Array, hidden_size: Array) -> Any:
    """Width of all GEMMs but the last."""
    return _width((linear for linear in part.linears if linear.split != ROWS), tp, hidden_size)


def last_width(part: Part, tp: Array, hidden_size: Array) -> Any:
    """Width of the last GEMM, which is split by inputs."""
    return _width((linear for linear in part.linears if linear.split == ROWS), tp, hidden_size)


def key_value_width(part: Part, tp: Array, hidden_size: Array) -> Any:
    """Width of the GEMMs that give keys and values."""
    return _width((linear for linear in part.linears if linear.keys), tp, hidden_size)


def up_width(part: Part, tp: Array, hidden_size: Array) -> Array:
    """Width of the projections up from latent vectors."""
    up = [linear for linear in part.linears if linear.up is not NEVER]
    return _total([product.up * _width((product,), tp, hidden_size) for product in up])


def further_up_width(part: Part, tp: Array, hidden_size: Array) -> Array:
    """Outputs of a rank's projections up from latent vectors beyond those of such a GEMM."""
    up = [linear for linear in part.linears if linear.up is not NEVER]
    each = [product.of_rank(product.outputs - product.weights / hidden_size, tp) for product in up]
    return _total(
        [product.up * xp.maximum(more, 0.0) for product, more in zip(up, each, strict=True)]
    )


def up_weights(part: Part) -> Array:
    """Weights of the projections up from latent vectors."""
    return _total([linear.up * linear.weights for linear in part.linears if linear.up is not NEVER])


def repeated_weights(part: Part) -> Array:
    """Weights of every second GEMM: of keys, the half of those of keys and values, and the last."""
    keys = [linear.weights / 2.0 for linear in part.linears if linear.keys]
    return _total([*keys, *(linear.weights for linear in part.linears if linear.split == ROWS)])


def adapter_width(part: Part, adapted: Array) -> Array:
    """Inputs and outputs of the GEMMs' adapters, if they have any: parameters by their rank."""
    each = []
    for linear in part.linears:
        if not linear.adapted:
            continue
        width = linear.alone * linear.inputs + linear.outputs
        each.append(xp.where(linear.weights > 0.0, width, 0.0))
    return adapted * _total(each)


def sum_of(
    of: Sum, kind: Callable[..., Any], more: Sequence[str] = ()
) -> tuple[tuple[str, ...], Callable[..., Any]]:
    """Return the quantities of which a sum over a kind's GEMMs follows, and the sum of these."""
    inputs, names = inputs_of(of, kind, more), parameters(kind)

    def kernel(*values: Array) -> Any:
        given = dict(zip(inputs, values, strict=True))
        unused = 1.0  # What the sum doesn't depend on
        part = kind(*(given.get(name, unused) for name in names))
        return of(part, *(given.get(name, unused) for name in more))

    return inputs, kernel


def declare_sum(
    returns: str,
    of: Sum,
    kind: Callable[..., Any],
    more: Sequence[str] = (),
    title: str = "",
    **further: Unpack[Further],
) -> None:
    """Declare a quantity as a sum over a kind's list; `more`: what the sum takes beside these."""
    declare(returns, *sum_of(of, kind, more), title, **further)
