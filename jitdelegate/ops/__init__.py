"""The meaning of TFLite's operators: OPS has one object per operator, each declared in one place, one file per family.

Read `registry.py` first, then `elementwise.py` and `convolution.py`.

- `registry.py`: `Op`, the base class, and `Lowering`. `call.py`: a node with its tensors. `case.py`: test cases.
- `pointwise.py`, `window.py`, `recurrent_cell.py` ...: code that the operators of a family share.
"""

from jitdelegate.ops import (  # noqa: F401 - each enters its operators in OPS
    arithmetic,
    attention,
    batch_space,
    constant,
    convolution,
    convolution_3d,
    depthwise,
    detection,
    elementwise,
    fourier,
    indexing,
    logic,
    matmul,
    mediapipe,
    mirror,
    normalization,
    padding,
    pooling,
    quantize,
    random_bits,
    ranking,
    recurrent,
    recurrent_network,
    reduction,
    repetition,
    resize,
    scattering,
    shape,
    slicing,
    splitting,
    stablehlo,
    stablehlo_windows,
    suppression,
    window_reduction,
)
from jitdelegate.ops.registry import OPS, Lowering, Op, find

__all__ = ["OPS", "Lowering", "Op", "find"]
