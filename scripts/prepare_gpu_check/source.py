"""Source: a model with inputs and expected outputs, from which a case of the bundle is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from jitdelegate.tflite.read import read as read_model

LITERT = "LiteRT"
FLOAT_LIMIT, HALF_WEIGHTS_LIMIT, HALF_LIMIT = 1e-5, 1e-4, 2e-3


@dataclass(frozen=True, slots=True, eq=False)
class Feed:
    """A tensor's values.

    Attributes:
        array: the tensor's, or what it holds for two images, one after the other.
        blocks: as in a bundle's `Values`.
    """

    array: np.ndarray
    blocks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """A model with inputs and expected outputs, which are computed when asked for.

    Attributes:
        name, group, reference, batch, steps, carried: as in a bundle's `Case`.
        content: the .tflite file.
        shared: the name of the model whose weights the programs share; "" where they have their own.
        shapes: of the inputs, where they are others than the model says.
    """

    name: str
    group: str
    content: bytes
    feeds: Sequence[Feed]
    expected: Callable[[], Sequence[Feed]]
    reference: str
    precisions: Sequence[str]
    shared: str = ""
    shapes: tuple[tuple[int, ...], ...] = ()
    batch: int = 1
    steps: int = 1
    carried: Sequence[tuple[int, int]] = ()


def limits(content: bytes) -> Mapping[str, float]:
    """By precision, how far the outputs may be from LiteRT's, which widens 16-bit weights in another order."""
    tensors = read_model(content).graphs[0].tensors
    half = any(tensor.is_constant and tensor.dtype == "float16" for tensor in tensors)
    return {"float32": HALF_WEIGHTS_LIMIT if half else FLOAT_LIMIT, "tf32": HALF_LIMIT, "float16": HALF_LIMIT}
