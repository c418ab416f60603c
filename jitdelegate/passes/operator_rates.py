"""Measured rates of operators on a CPU: compiled code against LiteRT's kernels, both on one thread with AVX-512;
`Level.slowdown` has other instruction sets.

The numbers are rounded to a tenth. Check them with `python -m scripts.bench partitions MODEL --only-ops OPERATOR`: it
compares LiteRT with models in which only this operator is compiled.
"""

from __future__ import annotations

from dataclasses import dataclass

from jitdelegate.ops.attention import ScaledDotProductAttention
from jitdelegate.ops.convolution import FullyConnected, TransposeConv, Weighted
from jitdelegate.ops.depthwise import DepthwiseConv2D
from jitdelegate.ops.fourier import ComplexAbs, Rfft2d
from jitdelegate.ops.mediapipe import Convolution2DTransposeBias
from jitdelegate.ops.normalization import Rows, Softmax
from jitdelegate.ops.padding import Padding
from jitdelegate.ops.pointwise import Pointwise
from jitdelegate.ops.pooling import Pooling
from jitdelegate.ops.quantize import Dequantize, Quantize
from jitdelegate.ops.recurrent import Recurrence
from jitdelegate.ops.recurrent_network import Svdf
from jitdelegate.ops.reduction import Reduction
from jitdelegate.ops.registry import Op
from jitdelegate.ops.resize import Resizing
from jitdelegate.ops.shape import Relabel, Transpose


@dataclass(frozen=True, slots=True)
class OperatorRate:
    """Rates of one operator.

    Attributes:
        saved: share of the time of LiteRT's kernel that compiled code saves; below 0 where compiled code is slower.
        saved_alone: as `saved`, where no neighbouring node is compiled with this one; None for the same share.
        slowdown: time of LiteRT's kernel over the time that its work and bytes predict.
        fuses: True where the operator is nearly free behind the node that writes one of its operands.
        changes_layout: True where compiled code copies images into a layout of its own, and back.
    """

    saved: float = 0.0
    saved_alone: float | None = None
    slowdown: float = 1.0
    fuses: bool = False
    changes_layout: bool = False


RATES: dict[type[Op], OperatorRate] = {
    Op: OperatorRate(),
    Weighted: OperatorRate(saved=0.2, saved_alone=-0.3, changes_layout=True),
    TransposeConv: OperatorRate(saved=0.5, saved_alone=0.5, slowdown=3.0, changes_layout=True),
    Convolution2DTransposeBias: OperatorRate(saved=0.5, saved_alone=0.5, slowdown=3.0, changes_layout=True),
    DepthwiseConv2D: OperatorRate(saved=0.4, saved_alone=0.4, changes_layout=True),
    Pooling: OperatorRate(saved=-0.3, changes_layout=True),
    Resizing: OperatorRate(saved=0.5, slowdown=2.0, changes_layout=True),
    Padding: OperatorRate(saved=0.7, slowdown=2.0),
    Rows: OperatorRate(saved=0.2),
    Softmax: OperatorRate(saved=0.2, slowdown=4.0),
    ScaledDotProductAttention: OperatorRate(saved=0.3),
    Recurrence: OperatorRate(saved=0.5),
    Rfft2d: OperatorRate(saved=0.9, slowdown=35.0),
    ComplexAbs: OperatorRate(saved=0.9, slowdown=7.5),
    Reduction: OperatorRate(saved=-0.5),
    Transpose: OperatorRate(saved=-0.5),
    Pointwise: OperatorRate(fuses=True),
    Relabel: OperatorRate(fuses=True),
}
"""Rates by operator class; a class without a row has those of its nearest base class."""

INTEGER_RATES: dict[type[Op], OperatorRate] = {
    Op: OperatorRate(),
    Weighted: OperatorRate(saved=0.3),
    FullyConnected: OperatorRate(saved=0.1, slowdown=0.5),
    TransposeConv: OperatorRate(saved=0.3),
    DepthwiseConv2D: OperatorRate(saved=0.7, slowdown=10.0),
    Pooling: OperatorRate(saved=0.3, slowdown=1.5),
    Resizing: OperatorRate(saved=0.3, slowdown=8.0),
    Padding: OperatorRate(saved=0.8, slowdown=2.0),
    Softmax: OperatorRate(saved=0.5, slowdown=30.0),
    Recurrence: OperatorRate(saved=0.9, slowdown=100.0),
    Svdf: OperatorRate(saved=0.4, slowdown=5.0),
    Reduction: OperatorRate(saved=0.6, slowdown=2.0),
    Transpose: OperatorRate(saved=0.2, slowdown=0.7),
    Quantize: OperatorRate(saved=-0.1, slowdown=0.3, fuses=True),
    Dequantize: OperatorRate(slowdown=0.5, fuses=True),
    Pointwise: OperatorRate(saved=0.4, slowdown=1.5, fuses=True),
    Relabel: OperatorRate(fuses=True),
}
"""As RATES, of operators on quantized values; on a CPU with VNNI."""
HYBRID_RATES: dict[type[Op], OperatorRate] = {
    Op: OperatorRate(),
    Weighted: OperatorRate(saved=-0.2),
    FullyConnected: OperatorRate(slowdown=0.5),
    DepthwiseConv2D: OperatorRate(saved=0.7, slowdown=7.0),
}
"""As RATES, of operators on float32 values with quantized weights."""


def operator_rate(op: Op | None, quantization: str = "") -> OperatorRate:
    """The rates of `op`; of any operator for None.

    Args:
        quantization: as in `Call`.
    """
    table = {"integer": INTEGER_RATES, "hybrid": HYBRID_RATES}.get(quantization, RATES)
    return next(table[each] for each in (type(op).__mro__ if op else (Op,)) if each in table)
