"""Quantized models of one operator each, which have to give what LiteRT gives, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from scripts.gpu_check.bundle import FORM
from scripts.one_op_models import MAKERS, one_op_models
from scripts.prepare_gpu_check.source import LITERT, Feed, Source
from scripts.quantized_inputs import hostile
from scripts.quantized_models import input_tensors
from scripts.quantized_runs import run_litert

PER_OPERATOR = 3
"""One for each type of activations, of which there are at most so many."""
PRECISIONS = ("float32",)


def quantized_forms(ops: Sequence[str] = tuple(MAKERS)) -> Iterator[Source]:
    """Models of each operator, of the types that LiteRT quantizes it for in turn."""
    for number, one in enumerate(one_op_models(ops, PER_OPERATOR)):
        values = next(hostile(input_tensors(one.content)))
        name = f"quantized {number} {one.op} {one.types}"
        expected = partial(litert_feeds, one.content, values)
        yield Source(name, FORM, one.content, list(map(Feed, values)), expected, LITERT, PRECISIONS)


def litert_feeds(content: bytes, values: Sequence[np.ndarray]) -> list[Feed]:
    """What LiteRT's default interpreter answers."""
    (outputs,) = run_litert(content, [values])
    return list(map(Feed, outputs))
