"""What TFLite's operators mean: OPS holds one object per operator, declared in one place each, one file a family."""

from jitdelegate.ops import (
    arithmetic,
    constant,
    convolution,
    elementwise,
    indexing,
    logic,
    matmul,
    mediapipe,
    normalization,
    pooling,
    ranking,
    reduction,
    resize,
    shape,
    slicing,
)
from jitdelegate.ops.registry import OPS, Lowering, Op, find

__all__ = [
    "OPS",
    "Lowering",
    "Op",
    "arithmetic",
    "constant",
    "convolution",
    "elementwise",
    "find",
    "indexing",
    "logic",
    "matmul",
    "mediapipe",
    "normalization",
    "pooling",
    "ranking",
    "reduction",
    "resize",
    "shape",
    "slicing",
]
