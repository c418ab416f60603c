"""Graphs of one Normalize: layer normalisation with scale and shift, and softmax along any axes."""

from __future__ import annotations

from jitdelegate.ir.expr import RESULT, Arg, unary
from jitdelegate.ir.forms import IndexMap, Normalize, Shape, Statistic
from jitdelegate.ir.graph import Graph
from tests.targets.cuda_graphs import graph_of

X = Arg(0)


def layer(shape: Shape, axes: tuple[int, ...], scale: Shape = (), shift: Shape = ()) -> Graph:
    """(x - mean) * rsqrt(variance + 0.01) * scale, then + shift as an epilogue."""
    centred = X - Arg(1)
    form = Normalize(
        RESULT + Arg(2),
        tuple(IndexMap.broadcast(each, shape) for each in (scale, shift)),
        axes,
        (Statistic("mean", X), Statistic("mean", centred * centred)),
        centred * (unary("rsqrt", Arg(2) + 0.01) * Arg(3)),
    )
    return graph_of(form, [shape, scale, shift], shape)


def softmax(shape: Shape, axes: tuple[int, ...]) -> Graph:
    """exp(x - max) / sum."""
    power = unary("exp", X - Arg(1))
    statistics = Statistic("max", X), Statistic("sum", power)
    return graph_of(Normalize(axes=axes, statistics=statistics, result=power / Arg(2)), [shape], shape)
