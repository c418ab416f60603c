"""Operators that relate every element to the others of its row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from jitdelegate.ir import forms
from jitdelegate.ops.call import Call, Shape, given
from jitdelegate.ops.case import Case
from jitdelegate.ops.registry import Lowering, Op, op


@op("SOFTMAX")
class Softmax(Op):
    """exp(beta * (x - max)) / sum of the same, over the last axis."""

    cases = (
        Case(((1, 10),), {"beta": 1.0}),
        Case(((3, 1001),), {"beta": 0.5}),
        Case(((1, 4, 5, 21),), {"beta": 1.0}),
        Case(((7,),), {"beta": 2.0}),
        Case(((2, 3, 1),), {"beta": 1.0}),
    )

    def problems(self, call: Call) -> Iterator[str]:
        if not 1 <= len(call.shape(0)) <= 4:
            yield f"SOFTMAX: the input's shape is {list(call.shape(0))}, expected rank 1 to 4."

    def shape(self, call: Call) -> Shape:
        return call.shape(0)

    def lowering(self, call: Call) -> Lowering:
        return Lowering(forms.Softmax(beta=float(call.option("beta", 0.0))), (call.index(0),))

    def reference(self, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any]) -> list[np.ndarray]:
        (data,) = given(arrays)
        powers = np.exp((data.astype(np.float64) - data.max(axis=-1, keepdims=True)) * attrs.get("beta", 0.0))
        return [np.asarray(powers / powers.sum(axis=-1, keepdims=True), np.float32)]
