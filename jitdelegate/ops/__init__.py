"""What TFLite's operators mean: OPS holds one object per operator, declared in one place each, one file a family."""

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
    indexing,
    logic,
    matmul,
    mediapipe,
    mirror,
    normalization,
    padding,
    pooling,
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
    suppression,
)
from jitdelegate.ops.registry import OPS, Lowering, Op, find

__all__ = ["OPS", "Lowering", "Op", "find"]
