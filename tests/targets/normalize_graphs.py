"""Graphs of one Normalize: layer normalisation with scale and shift, and softmax along any axes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from jitdelegate.ir.expr import RESULT, Arg, Cast, Const, unary
from jitdelegate.ir.fixed_point import FixedPoint
from jitdelegate.ir.forms import IndexMap, Normalize, Shape, Statistic
from jitdelegate.ir.graph import Graph
from jitdelegate.ir.quantized import Table, quantize, rescale
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


NUMBER = Cast(X, "int32")
BELOW = Cast(Arg(1) - NUMBER, "uint8")
LARGEST = Statistic("max", NUMBER, "int32")


def shares_in_order(shape: Shape) -> Graph:
    """The shares of int8 numbers in their rows, by sums in order, each of whose roundings they show."""
    power = Table(BELOW, tuple(np.exp(np.arange(256) * np.float32(-0.05)).astype(np.float32).tolist()), "float32")
    statistics = LARGEST, Statistic("sum", power, in_order=True)
    form = Normalize(axes=(len(shape) - 1,), statistics=statistics, result=power / Arg(2))
    return graph_of(form, [shape], shape, "int8")


def rounded_shares(shape: Shape) -> Graph:
    """The same shares in steps of 1/256, as uint8."""
    (node,) = (graph := shares_in_order(shape)).nodes
    assert isinstance(node.form, Normalize)
    form = replace(node.form, result=quantize(node.form.result * 256.0, "uint8", 0))
    return graph_of(form, [graph.tensors[0].shape], shape, "int8", "uint8")


def whole_shares(shape: Shape, axes: tuple[int, ...]) -> Graph:
    """The shares of int8 numbers in their rows, calculated with integers, as uint8."""
    power = Table(BELOW, tuple(range(1 << 16, (1 << 16) - 256 * 250, -250)), "int32")
    statistics = LARGEST, Statistic("sum", power, "int32")
    shift = Const(54) - FixedPoint("leading_zeros", Arg(2))
    form = Normalize(axes=axes, statistics=statistics, result=rescale(power, Const(1 << 30), shift, "uint8"))
    return graph_of(form, [shape], shape, "int8", "uint8")


WHOLE = [
    shares_in_order((40, 33)),
    shares_in_order((3, 5)),
    shares_in_order((2, 9, 300)),
    shares_in_order((600,)),
    shares_in_order((17, 1)),
    rounded_shares((3, 17)),
    rounded_shares((5, 1)),
    whole_shares((3, 700), (1,)),
    whole_shares((2, 3, 21), (2,)),
    whole_shares((2, 7, 19), (1,)),
    whole_shares((5, 1), (1,)),
]
"""Graphs of integers, whose results are exact."""


def integers(graph: Graph) -> list[np.ndarray]:
    """What is fed to a graph of int8 numbers: rows with a few large numbers each."""
    random = np.random.default_rng(0)
    return [random.normal(-60, 40, graph.tensors[0].shape).clip(-128, 127).astype(np.int8)]
