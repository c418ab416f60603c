"""Random graphs of quantized operators: each reads results of others, through a RESHAPE or QUANTIZE where necessary.

    content, what = quantized_graph(seed=3)

The operators are those of scripts/one_op_models.py, with the same random choices, and also very different scales.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from jitdelegate.ir.graph import Quant
from scripts.one_op_models import MAKERS
from scripts.quantized_draw import ALL, Draw, Shape
from tests.ops.quantized_models import BasicLstmModel, LstmModel, SvdfModel

MOST_OPERATORS = 6
SEQUENCES = (
    ("PAD", "CONV_2D"),
    ("PAD", "DEPTHWISE_CONV_2D", "ADD"),
    ("PAD", "MAX_POOL_2D"),
    ("PADV2", "CONV_2D", "RELU6"),
    ("SPACE_TO_BATCH_ND", "CONV_2D", "BATCH_TO_SPACE_ND"),
    ("SPACE_TO_BATCH_ND", "DEPTHWISE_CONV_2D", "BATCH_TO_SPACE_ND"),
    ("CONV_2D", "DEPTHWISE_CONV_2D", "CONV_2D", "ADD"),
    ("FULLY_CONNECTED", "ADD", "SPLIT", "LOGISTIC", "TANH", "MUL", "ADD"),
    ("CONCATENATION", "CONV_2D", "CONCATENATION"),
    ("TRANSPOSE", "CONV_2D", "TRANSPOSE"),
    ("RESHAPE", "TRANSPOSE", "RESHAPE", "CONV_2D"),
)
"""What passes look for, or networks are made of."""
MOST_ELEMENTS = 20_000
"""Of a value that further operators read."""
FAR = (-14, -8, 8, 14)
"""Powers of two between usual scales and those that now and then stand instead."""
LEAST, HIGHEST = -60, 20
"""Of the exponent of a scale."""


@dataclass
class Value:
    """A tensor that operators may read."""

    index: int
    shape: Shape
    dtype: str
    quant: Quant | None
    is_input: bool
    is_read: bool = field(default=False)


class GraphDraw(Draw):
    """A graph under construction.

    Attributes:
        source: the value that the next operator is made for; it may read others.
    """

    def __init__(self, seed: int) -> None:
        super().__init__("", seed, "int8", ties=bool(seed % 2))
        self._values: list[Value] = []
        self.source: Value | None = None
        self._is_first = True
        self._has_far = self.chance(4)

    def add(self, op: str) -> None:
        """One more operator."""
        types, make = MAKERS[op]
        self.source = None if self.chance(8) else self._any(lambda shape: True)
        self.dtype = self.source.dtype if self.source and self.source.dtype in types else str(self.choice(types))
        self._is_first = True
        self.said.append(f"| {op} {self.dtype}")
        make(self)

    def _any(self, fits: Callable[[Shape], bool]) -> Value | None:
        """A value to start from; mostly one that nothing reads yet."""
        found = [each for each in self._values if each.dtype in ALL and prod(each.shape) <= MOST_ELEMENTS]
        found = [each for each in found if fits(each.shape)]
        fresh = [] if self.chance(4) else [each for each in found if not each.is_read and not each.is_input]
        return self.choice(fresh or found) if found else None

    def _start(self, fits: Callable[[Shape], bool]) -> Shape | None:
        """The shape of the source, or of another value if that does not fit."""
        if self.source and not (self._is_first and fits(self.source.shape)):
            self.source = self._any(fits) if self._is_first else None
        return self.source.shape if self.source else None

    def whole(self) -> bytes:
        """The file; its outputs are all that no operator reads, and some that one does."""
        made = [each for each in self._values if not each.is_input]
        chosen = [each.index for each in made if not each.is_read or self.chance(6)]
        super().output(*chosen)
        return self.finish()

    # what makers ask for

    def shape(self, *ranks: int, most: int = 9) -> Shape:
        return self._start(lambda shape: len(shape) in (ranks or (4,))) or super().shape(*ranks, most=most)

    def image(self, multiple: int = 1) -> Shape:
        return self._start(lambda shape: len(shape) == 4 and shape[3] % multiple == 0) or super().image(multiple)

    def rows(self) -> Shape:
        return self._start(lambda shape: len(shape) > 1) or super().rows()

    def scale(self, exponent: float = -5.0) -> float:
        far = self.choice(FAR) if self._has_far and self.chance(8) else 0
        return super().scale(min(max(exponent + far, LEAST), HIGHEST))

    def quant(self, exponent: float = -5.0, dtype: str | None = None) -> Quant:
        source, is_first = self.source, self._is_first
        self._is_first = False
        is_own = source is not None and (dtype or self.dtype) == source.dtype
        if is_first and is_own and source and source.quant and not self.chance(6):
            return source.quant
        return super().quant(exponent, dtype)

    def data(self, shape: Shape, quant: Quant | None, dtype: str | None = None) -> int:
        dtype = dtype or self.dtype
        same = [each for each in self._values if prod(each.shape) == prod(shape) and _converts(each.dtype, dtype)]
        exact = [each for each in same if (each.shape, each.dtype, each.quant) == (shape, dtype, quant)]
        if same and not self.chance(8):
            return self._converted(self.choice(exact or same), shape, quant, dtype)
        index = super().data(shape, quant, dtype)
        self._values.append(Value(index, shape, dtype, quant, is_input=True))
        return index

    def _converted(self, value: Value, shape: Shape, quant: Quant | None, dtype: str) -> int:
        value.is_read = True
        index, now = value.index, value.quant
        if value.shape != shape:
            options = {"new_shape": shape}
            index = self.op(
                "RESHAPE", [index, self.integers(shape)], shape, options=options, dtype=value.dtype, quant=now
            )
        if (value.dtype, now) != (dtype, quant):
            index = self.op("QUANTIZE", [index], shape, dtype=dtype, quant=quant)
        return index

    def results(
        self,
        op: str,
        inputs: Sequence[int | None],
        shapes: Sequence[Shape],
        quant: Quant | None,
        dtype: str = "",
        **options: Any,
    ) -> None:
        self._made = (dtype or self.dtype, quant, list(shapes))
        super().results(op, inputs, shapes, quant, dtype, **options)

    def output(self, *tensors: int) -> None:
        dtype, quant, shapes = self._made
        for index, shape in zip(tensors, shapes, strict=True):
            self._values.append(Value(index, shape, dtype, quant, is_input=False))


def _converts(source: str, wanted: str) -> bool:
    """Whether LiteRT has a QUANTIZE from one type to the other."""
    return source == wanted or (source in ALL and wanted in ALL and (source, wanted) != ("int16", "uint8"))


def quantized_graph(seed: int, ops: Sequence[str] = tuple(MAKERS)) -> tuple[bytes, str]:
    """The file, and how it was drawn; equal arguments give equal bytes."""
    draw = GraphDraw(seed)
    fitting = [each for each in SEQUENCES if set(ops).issuperset(each)]
    names = draw.choice(fitting) if fitting and draw.chance(4) else ()
    for op in names or [draw.choice(ops) for _ in range(draw.size(MOST_OPERATORS))]:
        draw.add(str(op))
    return draw.whole(), " ".join(draw.said)


def recurrent_model(seed: int) -> bytes:
    """An LSTM or SVDF with states. Those of an SVDF are int16: LiteRT's kernel for int8 damages memory."""
    draw = Draw("recurrent", seed, "int8", ties=False)
    sizes = {"batch": draw.size(3), "depth": draw.size(33), "units": draw.size(20)}
    if draw.chance(3):
        return SvdfModel(**sizes, rank=draw.size(3), length=draw.size(12), bias=draw.chance(2)).content()
    if draw.chance(4):
        scale = 2.0 ** -draw.choice([13, 15, 15.6, 17])
        return BasicLstmModel(**sizes, zero=draw.choice([0, 100, 128, 255]), bias_scale=scale).content()
    options = {name: draw.chance(3) for name in ("coupled", "peepholes", "norm", "time_major")}
    return LstmModel(
        **sizes,
        **options,
        op=draw.choice(["LSTM", "UNIDIRECTIONAL_SEQUENCE_LSTM"]),
        outputs=draw.size(sizes["units"]) if draw.chance(3) else 0,
        steps=draw.size(4),
        cell_clip=draw.choice([0.0, 0.7]),
        power=draw.choice([-10, -11, -12]),
        zero=draw.zero(),
        gates=tuple(2.0 ** -draw.choice([1, 6, 10, 12.3, 15]) for _ in range(4)),
        activation=draw.choice(["TANH", "TANH", "RELU", "NONE"]),
        hidden=draw.choice([(0.0078, -1), (0.005, 40), (0.009, -90)]),
    ).content()
