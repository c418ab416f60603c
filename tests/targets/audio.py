"""Small audio front ends with the operators that converters write for tf.signal: frames, frequencies, bands.

Sizes that depend on the signal's length are computed from its SHAPE at run time, so all shapes here are only hints.
"""

from __future__ import annotations

from math import gcd
from typing import Any

import numpy as np

from jitdelegate.tflite.write import ModelBuilder

BANDS = 12


def words(samples: int = 400) -> bytes:
    """f32[samples] to logarithms of magnitudes f32[frames, BANDS], as in YAMNet: 20 of 50 samples, padded to 64."""
    model = _FrontEnd()
    signal = model.input((samples,), name="wave", shape_signature=(-1,))
    frames = model.frames(signal, 1, 50, 20)
    padded = model.op("PAD", [frames, model.numbers((0, 0), (0, 14))], (1, 64))
    pairs = model.frequencies(padded, 2, 64)
    flat = model.op("RESHAPE", [pairs, model.numbers(-1, 33)], (1, 33), dtype="complex64")
    magnitudes = model.op("COMPLEX_ABS", [flat], (1, 33))
    bands = model.op(
        "FULLY_CONNECTED", [magnitudes, model.filters(BANDS, 33), model.floats(np.full(BANDS, 0.01))], (1, BANDS)
    )
    model.output(model.op("LOG", [bands], (1, BANDS), name="bands"))
    return model.finish()


def birds(samples: int = 900) -> bytes:
    """f32[1, samples] to powers f32[1, BANDS, frames, 1], as in BirdNET: the real parts for 128 samples, every 36."""
    model = _FrontEnd()
    signal = model.input((1, samples), name="wave", shape_signature=(-1, samples))
    lowest = model.op("REDUCE_MIN", [signal, model.numbers(1)], (1, 1), options={"keep_dims": True})
    raised = model.op("SUB", [signal, lowest], (1, samples))
    highest = model.op("REDUCE_MAX", [raised, model.numbers(1)], (1, 1), options={"keep_dims": True})
    frames = model.frames(model.op("DIV", [raised, highest], (1, samples)), 2, 128, 36)
    pairs = model.frequencies(frames, 3, 128)
    flat = model.op("SQUEEZE", [pairs], (1, 1, 65), options={"squeeze_dims": (-2,)}, dtype="complex64")
    parts = model.op("CAST", [flat], (1, 1, 65), options={"in_data_type": "COMPLEX64", "out_data_type": "FLOAT32"})
    bands = model.op("POW", [model.dot(parts, 65), model.floats(2.0)], (1, 1, BANDS))
    moved = model.op("TRANSPOSE", [bands, model.numbers(0, 2, 1)], (1, BANDS, 1))
    model.output(model.op("EXPAND_DIMS", [moved, model.number(-1)], (1, BANDS, 1, 1), name="powers"))
    return model.finish()


class _FrontEnd(ModelBuilder):
    def __init__(self) -> None:
        super().__init__()
        self._random = np.random.default_rng(5)

    def numbers(self, *values: Any) -> int:
        """A vector or matrix of int32."""
        return self.constant(np.array(values, np.int32))

    def number(self, value: int) -> int:
        """A single int32."""
        return self.constant(np.array(value, np.int32))

    def floats(self, values: Any) -> int:
        return self.constant(np.array(values, np.float32))

    def filters(self, *shape: int) -> int:
        """Weights that are not negative."""
        return self.floats(self._random.uniform(0, 0.1, shape))

    def whole(self, op: str, *operands: int, shape: tuple[int, ...] = (), **options: Any) -> int:
        """An operator on int32."""
        return self.op(op, operands, shape, dtype="int32", options=options)

    def pack(self, *operands: int) -> int:
        return self.whole("PACK", *operands, shape=(len(operands),), values_count=len(operands), axis=0)

    def joined(self, *operands: int, size: int) -> int:
        return self.whole("CONCATENATION", *operands, shape=(size,), axis=0)

    def frames(self, signal: int, rank: int, length: int, step: int) -> int:
        """tf.signal.frame along the last of `rank` axes, times a window: [..., frames, length]."""
        part, one = gcd(length, step), self.number(1)
        sizes = self.whole("SHAPE", signal, shape=(rank,), out_type="INT32")
        outer, last, rest = (self.tensor((size,), "int32") for size in (rank - 1, 1, 0))
        self.node(
            "SPLIT_V",
            [sizes, self.numbers(rank - 1, 1, 0), self.number(0)],
            [outer, last, rest],
            options={"num_splits": 3},
        )
        samples = self.whole("RESHAPE", last, self.constant(np.zeros(0, np.int32)))
        parts = self.whole("FLOOR_DIV", samples, self.number(part))
        used = self.whole("RESHAPE", self.whole("MUL", parts, self.number(part)), self.numbers(1), shape=(1,))
        end = self.joined(outer, used, rest, size=rank)
        cut = self.op(
            "STRIDED_SLICE", [signal, self.numbers(*(0,) * rank), end, self.numbers(*(1,) * rank)], (1,) * rank
        )
        inner = self.joined(outer, self.pack(parts, self.number(part)), rest, size=rank + 1)
        apart = self.op("RESHAPE", [cut, inner], (1,) * (rank + 1))
        more = self.whole("FLOOR_DIV", self.whole("SUB", samples, self.number(length)), self.number(step))
        count = self.whole("MAXIMUM", self.whole("ADD", more, one), self.number(0))
        steps = self.whole(
            "MUL", self.whole("RANGE", self.number(0), count, one, shape=(1,)), self.number(step // part), shape=(1,)
        )
        starts = self.whole("RESHAPE", steps, self.pack(count, one), shape=(1, 1))
        places = self.whole("ADD", starts, self.numbers(tuple(range(length // part))), shape=(1, length // part))
        found = self.op("GATHER", [apart, places], (1,) * (rank + 2), options={"axis": rank - 1})
        shape = self.joined(outer, self.pack(count, self.number(length)), rest, size=rank + 1)
        frames = self.op("RESHAPE", [found, shape], (1,) * (rank + 1))
        return self.op("MUL", [frames, self.floats(np.hanning(length))], (1,) * (rank + 1))

    def frequencies(self, frames: int, rank: int, length: int) -> int:
        """RFFT2D with an axis of size 1 before the last."""
        rows = self.op("EXPAND_DIMS", [frames, self.number(-2)], (1,) * (rank + 1))
        shape = (*(1,) * rank, length // 2 + 1)
        return self.op("RFFT2D", [rows, self.numbers(1, length)], shape, dtype="complex64")

    def dot(self, data: int, depth: int) -> int:
        """tf.tensordot with BANDS filters: all axes before the last become one, and come back."""
        sizes = self.whole("SHAPE", data, shape=(3,), out_type="INT32")
        outer = self.whole("GATHER", sizes, self.numbers(0, 1), shape=(2,), axis=0)
        inner = self.whole("GATHER", sizes, self.numbers(2), shape=(1,), axis=0)
        products = [self.whole("REDUCE_PROD", each, self.numbers(0), keep_dims=False) for each in (outer, inner)]
        rows = self.op("RESHAPE", [data, self.pack(*products)], (1, depth))
        found = self.op("BATCH_MATMUL", [rows, self.filters(depth, BANDS)], (1, BANDS))
        return self.op("RESHAPE", [found, self.joined(outer, self.numbers(BANDS), size=3)], (1, 1, BANDS))
