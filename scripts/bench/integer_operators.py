"""Speed of operators that move, map, pool or resample quantized values on the CPU: models of one operator against
LiteRT with XNNPACK, interleaved.

Shapes are those of real networks. Both sides run `Interpreter.invoke` on the same random input. The speed is LiteRT's
time over ours, the median of the rounds' ratios: above 1 we are faster. The time of a call that copies a few bytes,
measured first, says how much of the smallest times is the call itself.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from jitdelegate.commands.measurement.column import Column
from jitdelegate.ir.graph import Quant
from jitdelegate.tflite.write import ModelBuilder
from scripts.bench.rounds import mean_speeds, pair_columns, versus_litert
from scripts.bench.suite import Row, Suite, add_only

Shape = tuple[int, ...]
SMALL, LARGE = (1, 14, 14, 96), (1, 56, 56, 64)
"""Images in the middle and at the beginning of a classifier."""
QUANTS = tuple(Quant((scale,), (zero,)) for scale, zero in ((0.0213, -7), (0.0347, 11), (0.0411, 3)))
BYTE = {"int8": 0, "uint8": 128}
"""Type -> what is added to zero points."""
LOGISTIC, TANH = Quant((1 / 256,), (-128,)), Quant((1 / 128,), (0,))
TINY = "tiny TRANSPOSE"


class One(ModelBuilder):
    """A model of one operator."""

    def __init__(self, dtype: str) -> None:
        super().__init__()
        self.dtype = dtype

    def quant(self, quant: Quant) -> Quant:
        return Quant(quant.scales, (quant.zero_points[0] + BYTE[self.dtype],))

    def data(self, shape: Shape, number: int = 0) -> int:
        return self.input(shape, self.dtype, quant=self.quant(QUANTS[number]))

    def ints(self, *values: int) -> int:
        return self.constant(np.array(values, np.int32))

    def finished(self, op: str, inputs: Sequence[int | None], shape: Shape, quant: Quant, **options: Any) -> bytes:
        """The model whose output is the operator's."""
        made = self.op(op, inputs, shape, options=options or None, dtype=self.dtype, quant=self.quant(quant), version=2)
        self.output(made)
        return self.finish()


def models(dtype: str) -> Iterator[tuple[str, bytes]]:
    """(name, model) of every operator for values of type `dtype`."""
    fused = {"fused_activation_function": "NONE"}
    same = QUANTS[0]
    one = One(dtype)
    yield TINY, one.finished("TRANSPOSE", [one.data((2, 2)), one.ints(1, 0)], (2, 2), same)
    for shape in (SMALL, LARGE):
        for op in ("ADD", "SUB", "MUL"):
            one = One(dtype)
            yield f"{op} {shape}", one.finished(op, [one.data(shape), one.data(shape, 1)], shape, QUANTS[2], **fused)
        one = One(dtype)
        per_channel = one.data((1, 1, 1, shape[3]), 1)
        yield f"MUL {shape} by channels", one.finished("MUL", [one.data(shape), per_channel], shape, QUANTS[2], **fused)
        for op, quant in (("LOGISTIC", LOGISTIC), ("TANH", TANH), ("QUANTIZE", QUANTS[1])):
            one = One(dtype)
            yield f"{op} {shape}", one.finished(op, [one.data(shape)], shape, quant)
        one = One(dtype)
        real = one.op("DEQUANTIZE", [one.data(shape)], shape, dtype="float32", version=2)
        one.output(real)
        yield f"DEQUANTIZE {shape}", one.finish()
        one = One(dtype)
        yield f"QUANTIZE float32 {shape}", one.finished("QUANTIZE", [one.input(shape)], shape, same)
        one = One(dtype)
        yield (
            f"MEAN {shape}",
            one.finished("MEAN", [one.data(shape), one.ints(1, 2)], (1, 1, 1, shape[3]), QUANTS[1], keep_dims=True),
        )
        yield from _pools(dtype, shape)
        yield from _moves(dtype, shape)
    for shape, size in (((1, 33, 33, 21), (257, 257)), ((1, 17, 17, 256), (34, 34))):
        one = One(dtype)
        operands = [one.data(shape), one.ints(*size)]
        name = f"RESIZE_BILINEAR {shape} to {size}"
        yield name, one.finished("RESIZE_BILINEAR", operands, (1, *size, shape[3]), same, half_pixel_centers=True)


def _pools(dtype: str, shape: Shape) -> Iterator[tuple[str, bytes]]:
    batch, height, width, channels = shape
    for op, size, stride in (("MAX_POOL_2D", 3, 2), ("MAX_POOL_2D", 2, 2), ("AVERAGE_POOL_2D", 3, 1)):
        one = One(dtype)
        out = (batch, -(-height // stride), -(-width // stride), channels)
        window = {"filter_height": size, "filter_width": size, "stride_h": stride, "stride_w": stride}
        options = {**window, "padding": "SAME", "fused_activation_function": "NONE"}
        yield f"{op} {shape} {size}x{size}/{stride}", one.finished(op, [one.data(shape)], out, QUANTS[0], **options)


def _moves(dtype: str, shape: Shape) -> Iterator[tuple[str, bytes]]:
    batch, height, width, channels = shape
    one = One(dtype)
    parts, options = [one.data(shape), one.data(shape)], {"axis": 3, "fused_activation_function": "NONE"}
    wide = (batch, height, width, 2 * channels)
    yield f"CONCATENATION {shape}", one.finished("CONCATENATION", parts, wide, QUANTS[0], **options)
    for order in ((0, 3, 1, 2), (0, 2, 1, 3)):
        one = One(dtype)
        turned = tuple(shape[axis] for axis in order)
        yield (
            f"TRANSPOSE {shape} {order}",
            one.finished("TRANSPOSE", [one.data(shape), one.ints(*order)], turned, QUANTS[0]),
        )
    one = One(dtype)
    margins = one.constant(np.array([(0, 0), (1, 1), (1, 1), (0, 0)], np.int32))
    padded = (batch, height + 2, width + 2, channels)
    yield f"PAD {shape}", one.finished("PAD", [one.data(shape), margins], padded, QUANTS[0])


def rows(arguments: argparse.Namespace) -> Iterator[Row]:
    """One per type of values, operator and number of threads."""
    for dtype in arguments.types:
        for name, content in models(dtype):
            if arguments.only in name or name == TINY:
                for threads in arguments.threads:
                    row = versus_litert(content, threads, arguments.rounds, "us", target="cpu")
                    yield {"operator": f"{dtype} {name}", **row}


def options(parser: argparse.ArgumentParser) -> None:
    """Which operators, of which types."""
    add_only(parser)
    parser.add_argument("--types", nargs="+", choices=[*BYTE], default=["int8"])


SUITE = Suite(
    columns=(Column("operator", "<50"), Column("threads", "7"), *pair_columns("us"), Column("target", "<8")),
    rows=rows,
    models=False,
    threads=(1,),
    options=options,
    summary=lambda rows: mean_speeds((row for row in rows if TINY not in row["operator"]), "threads"),
)
