"""The activations that TFLite fuses into other operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from jitdelegate.ir.expr import Arg, Expr, clamp, evaluate, maximum

ACTIVATIONS: Mapping[str, Callable[[Expr], Expr]] = {
    "NONE": lambda x: x,
    "RELU": lambda x: maximum(x, 0),
    "RELU_N1_TO_1": lambda x: clamp(x, -1, 1),
    "RELU6": lambda x: clamp(x, 0, 6),
}
"""TFLite's name -> the expression. LiteRT's kernels silently ignore TANH and SIGN_BIT, so models with these two are
left to LiteRT."""

OPTION = "fused_activation_function"
"""TFLite's name of the option that holds the activation."""


def activated(name: str, values: np.ndarray) -> np.ndarray:
    """float32 values after the activation `name`, which has to be one of ACTIVATIONS."""
    return evaluate(ACTIVATIONS[name](Arg(0)), [values.astype(np.float32)])
