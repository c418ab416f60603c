"""Attention as the one operator that generative models use for it.

Its meaning is that of LiteRT's XNNPACK delegate (VisitDotAttentionNode in delegates/xnnpack/xnnpack_delegate.cc), which
recognizes the composite by its name. LiteRT's builtin kernels run the composite's decomposition instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, prod, sqrt
from typing import Any

import numpy as np

from jitdelegate.ir.expr import RESULT, Expr, unary
from jitdelegate.ir.forms import MatMul, Softmax
from jitdelegate.ops.call import Call, Shape, given
from jitdelegate.ops.case import Case
from jitdelegate.ops.pointwise import X, Y, broadcast, broadcasts, mapped
from jitdelegate.ops.registry import Lowering, Op, flex_map, op, view
from jitdelegate.ops.shape import reordered

SCALE, CAP = "scale", "logit_cap"
MANY_QUERIES = 64
"""Queries that are worth a product per head: the mask is added while it is written. Fewer share the keys of a group."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of one attention: `heads` query heads in groups of `group`, each group sharing a key and value head."""

    batch: int
    queries: int
    keys: int
    heads: int
    group: int
    depth: int

    @classmethod
    def of(cls, query: Shape, key: Shape) -> Sizes:
        batch, queries, heads, depth = query
        return cls(batch, queries, key[1], heads, heads // key[2], depth)

    @property
    def shared(self) -> int:
        """Key and value heads."""
        return self.heads // self.group


@op("odml.scaled_dot_product_attention", custom=True)
class ScaledDotProductAttention(Op):
    """softmax(cap(scale * q . k) + mask) . v of q f32[B,T,N,H], k and v f32[B,S,K,H], and a mask that broadcasts to
    f32[B,N,T,S]; query head n reads key and value head n // (N / K).

    `scale` is 1 / sqrt(H) by default. cap(x) is tanh(x / logit_cap) * logit_cap, or x if `logit_cap` is not given.
    """

    folds = 0
    least, most = 3, 4
    cases = (
        Case(((1, 3, 4, 8), (1, 6, 1, 8), (1, 6, 1, 8), (1, 1, 3, 6)), {SCALE: 0.25}, low=-2, high=2),
        Case(((1, 3, 4, 8), (1, 6, 2, 8), (1, 6, 2, 8), (1, 1, 3, 6)), {SCALE: 0.25}, low=-2, high=2),
        Case(((2, 5, 3, 8), (2, 7, 3, 8), (2, 7, 3, 8)), {SCALE: None}, low=-2, high=2),
        Case(((1, 1, 4, 16), (1, 33, 2, 16), (1, 33, 2, 16), (1, 1, 1, 33)), {SCALE: 0.5, CAP: 3.0}, low=-2, high=2),
        Case(((1, 4, 2, 8), (1, 5, 2, 8), (1, 5, 2, 8), (1, 2, 4, 5)), {CAP: 20.0}, low=-2, high=2),
        Case(((2, 64, 4, 8), (2, 9, 2, 8), (2, 9, 2, 8), (1, 1, 64, 9)), {SCALE: 0.25}, low=-2, high=2),
        Case(((1, 65, 4, 8), (1, 9, 2, 8), (1, 9, 2, 8)), {CAP: 3.0}, low=-2, high=2),
        Case(((1, 64, 4, 8), (1, 9, 2, 8), (1, 9, 2, 8), (1, 4, 64, 9)), {SCALE: 0.25}, low=-2, high=2),
        Case(((2, 4, 6, 8), (2, 5, 2, 8), (2, 5, 2, 8), (2, 6, 1, 5)), {SCALE: None}, low=-2, high=2),
    )

    def decode(self, options: bytes) -> dict[str, Any]:
        """A FlexBuffer: a map with the optional numbers `scale` and `logit_cap`."""
        known = flex_map(options) if options else {}
        if known is None:
            return {}
        numbers = {name: known.get(name) for name in (SCALE, CAP)}
        fine = all(value is None or _is_finite(value) for value in numbers.values())
        return numbers if fine and numbers[CAP] != 0 else {}

    def problems(self, call: Call) -> Iterator[str]:
        query, key, value = (call.shape(k) for k in range(3))
        if not len(query) == len(key) == len(value) == 4 or key != value:
            yield f"{self.name} of the shapes {list(query)}, {list(key)} and {list(value)} is not supported."
        sizes_differ = (query[0], query[3]) != (key[0], key[3])
        if sizes_differ or not key[2] or query[2] % key[2]:
            yield f"{self.name}: queries of {list(query)} do not fit keys of {list(key)}."
        scores = (query[0], query[2], query[1], key[1])
        if call.given(3) and not _is_mask(call.shape(3), scores):
            yield f"{self.name}: a mask of {list(call.shape(3))} does not broadcast to {list(scores)}."

    def work(self, call: Call) -> int:
        return 2 * prod(call.shape(0)) * call.shape(1)[1]

    def lowering(self, call: Call) -> Lowering:
        """The queries of a group are rows of one product, because they share their keys; unless there are many."""
        sizes = Sizes.of(call.shape(0), call.shape(1))
        if sizes.queries >= MANY_QUERIES and sizes.group > 1 and _mask(call)[:2] == (1, 1):
            queries, grouped = _apart(call.index(0), sizes)
            keys, values = (
                view(_by_head(call.index(operand), sizes), (grouped[0], 1, sizes.keys, sizes.depth))
                for operand in (1, 2)
            )
        else:
            queries, grouped = _grouped(call.index(0), sizes)
            keys, values = (_by_head(call.index(operand), sizes) for operand in (1, 2))
        shape = (*grouped[:-1], sizes.keys)
        capped = _capped(call.node.attrs, sizes.depth, RESULT)
        scores = Lowering(MatMul(adj_y=True, epilogue=capped), (queries, keys), shape, "float32")
        weights = Lowering(Softmax(), (_masked(call, scores, sizes),), shape, "float32")
        products = Lowering(MatMul(), (weights, values), grouped, "float32")
        split = (sizes.batch, sizes.heads, sizes.queries, sizes.depth)
        return view(reordered(products, split, (0, 2, 1, 3), "float32"), call.shape(0))

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        query, key, value, *mask = (array.astype(np.float64) for array in given(arrays))
        sizes = Sizes.of(query.shape, key.shape)
        key, value = (np.repeat(array, sizes.group, axis=2) for array in (key, value))
        scores = np.einsum("btnh,bsnh->bnts", query, key) * _scale(attrs, sizes.depth)
        cap = attrs.get(CAP)
        scores = scores if cap is None else np.tanh(scores / cap) * cap
        scores = scores + mask[0] if mask else scores
        powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights = powers / powers.sum(axis=-1, keepdims=True)
        return [np.einsum("bnts,bsnh->btnh", weights, value).astype(np.float32)]


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and isfinite(value)


def _is_mask(mask: Shape, scores: Shape) -> bool:
    """Whether the mask broadcasts to the scores; XNNPACK expects one number for each key."""
    fits = 0 < len(mask) <= len(scores) and broadcasts(mask, scores)
    return fits and broadcast(mask, scores) == scores and mask[-1] == scores[-1]


def _scale(attrs: Mapping[str, Any], depth: int) -> float:
    scale = attrs.get(SCALE)
    return 1 / sqrt(depth) if scale is None else float(scale)


def _capped(attrs: Mapping[str, Any], depth: int, product: Expr) -> Expr:
    """A score from the product of a query and a key."""
    scale, cap = _scale(attrs, depth), attrs.get(CAP)
    return product * scale if cap is None else unary("tanh", product * (scale / cap)) * float(cap)


def _grouped(query: int, sizes: Sizes) -> tuple[Lowering, Shape]:
    """The queries grouped by key head, the rows of a group's heads one after another: f32[B, K, N / K * T, H]."""
    apart = (sizes.batch, sizes.queries, sizes.heads, sizes.depth)
    shape = (sizes.batch, sizes.shared, sizes.group * sizes.queries, sizes.depth)
    return view(reordered(query, apart, (0, 2, 1, 3), "float32"), shape), shape


def _apart(query: int, sizes: Sizes) -> tuple[Lowering, Shape]:
    """The queries of each head: f32[B * K, N / K, T, H]."""
    shape = (sizes.batch * sizes.shared, sizes.group, sizes.queries, sizes.depth)
    source = (sizes.batch, sizes.queries, sizes.heads, sizes.depth)
    return view(reordered(query, source, (0, 2, 1, 3), "float32"), shape), shape


def _by_head(source: int, sizes: Sizes) -> Lowering:
    """Keys or values as f32[B, K, S, H]."""
    return reordered(source, (sizes.batch, sizes.keys, sizes.shared, sizes.depth), (0, 2, 1, 3), "float32")


def _mask(call: Call) -> Shape:
    """The mask's shape with four axes; ones without a mask."""
    shape = call.shape(3) if call.given(3) else ()
    return (1,) * (4 - len(shape)) + shape


def _masked(call: Call, scores: Lowering, sizes: Sizes) -> Lowering:
    """The scores with the mask added; their shape stays the same."""
    assert scores.shape is not None
    if not call.given(3):
        return scores
    mask = _mask(call)
    if scores.shape[1:] == (sizes.group, sizes.queries, sizes.keys) and mask[:2] == (1, 1):
        return mapped(X + Y, (scores, scores.shape), (view(call.index(3), mask), mask), shape=scores.shape)
    by_group = (sizes.shared, sizes.group) if mask[1] > 1 else (1, 1)
    if sizes.queries == 1 and mask[1] == 1:  # one row for each head; the same numbers are added to every row
        return mapped(X + Y, (scores, scores.shape), (view(call.index(3), mask), mask), shape=scores.shape)
    apart = (sizes.batch, sizes.shared, sizes.group, sizes.queries, sizes.keys)
    shape = (mask[0], *by_group, *mask[2:])
    added = mapped(X + Y, (view(scores, apart), apart), (view(call.index(3), shape), shape), shape=apart)
    return view(added, scores.shape)
