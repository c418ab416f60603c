"""Shapes that are consistent and still ask for too much: refused in one sentence before anything is compiled."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from jitdelegate import passes
from jitdelegate.base.options import DelegateOptions
from jitdelegate.compiler.compile import compile_model
from jitdelegate.passes.support import unsupported
from jitdelegate.program.read import read as read_program
from jitdelegate.runtime.cache.key import Key
from jitdelegate.tflite.read import read
from jitdelegate.tflite.write import ModelBuilder

UNIT = {"padding": "SAME", "stride_h": 1, "stride_w": 1}


def zeros(model: ModelBuilder, *shape: int) -> int:
    return model.constant(np.zeros(shape, np.float32))


def ints(model: ModelBuilder, values: object) -> int:
    return model.constant(np.array(values, np.int32))


def large_broadcast(model: ModelBuilder) -> int:
    return model.op("ADD", [model.input((1 << 17, 1)), model.input((1, 1 << 18))], (1 << 17, 1 << 18))


def large_resize(model: ModelBuilder) -> int:
    size = ints(model, (1, 1 << 28))
    return model.op("RESIZE_BILINEAR", [model.input((1, 4, 4, 1)), size], (1, 1, 1 << 28, 1))


def far_window(model: ModelBuilder) -> int:
    x, options = model.input((1, 8, 8, 1)), {**UNIT, "dilation_h_factor": 1 << 30, "dilation_w_factor": 1 << 30}
    return model.op("CONV_2D", [x, zeros(model, 1, 3, 3, 1), zeros(model, 1)], (1, 8, 8, 1), options=options)


def far_depthwise_window(model: ModelBuilder) -> int:
    x, options = model.input((1, 8, 8, 1)), {**UNIT, "dilation_h_factor": 1 << 20, "dilation_w_factor": 1 << 20}
    return model.op("DEPTHWISE_CONV_2D", [x, zeros(model, 1, 3, 3, 1), zeros(model, 1)], (1, 8, 8, 1), options=options)


def many_phases(model: ModelBuilder) -> int:
    x, options = model.input((1, 1, 1, 1)), {"padding": "SAME", "stride_h": 1 << 10, "stride_w": 1 << 10}
    shape = (1, 1 << 10, 1 << 10, 1)
    return model.op("TRANSPOSE_CONV", [ints(model, shape), zeros(model, 1, 3, 3, 1), x], shape, options=options)


def many_groups(model: ModelBuilder) -> int:
    x, size = model.input((1, 1, 1, 100_000)), 100_000
    return model.op("CONV_2D", [x, zeros(model, size, 1, 1, 1), zeros(model, size)], (1, 1, 1, size), options=UNIT)


def many_parts(model: ModelBuilder) -> int:
    return model.op("CONCATENATION", [model.input((1, 3))] * 5000, (1, 15_000), options={"axis": 1})


def many_weights(model: ModelBuilder) -> int:
    size = 1 << 23
    filters = model.op("FILL", [ints(model, (1, size)), model.constant(np.float32(1))], (1, size))
    return model.op("FULLY_CONNECTED", [model.input((1, size)), filters], (1, 1))


HOSTILE = {
    large_broadcast: "34359738368 elements",
    large_resize: "expected at most 1048576",
    far_window: "reaches so far",
    far_depthwise_window: "reaches so far",
    many_phases: "1048576 parts",
    many_groups: "100000 groups",
    many_parts: "expected 1 to 4096",
    many_weights: "8388608 weights for one output channel",
}


@pytest.mark.parametrize("hostile", HOSTILE, ids=lambda hostile: hostile.__name__)
def test_what_would_take_the_machines_memory_or_time_is_refused(hostile: Callable[[ModelBuilder], int]) -> None:
    model = ModelBuilder()
    model.output(hostile(model))
    content = read(model.finish())
    ((_, reason),) = unsupported(content, passes.run(content.graphs[0], passes=passes.FOLD))
    assert HOSTILE[hostile] in reason


def test_code_that_would_take_too_long_to_compile_is_left_to_litert(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jitdelegate.targets.cpu.code.vector_ir.MAX_LINES", 50)
    model = ModelBuilder()
    model.output(model.op("TANH", [model.input((3, 5))], (3, 5)))
    key = Key((("target", "cpu"), ("features", "x86-64-v3")))
    program = read_program(b"".join(compile_model(model.finish(), DelegateOptions(), key, {})))
    assert program.target == "litert"
    assert [operator.reason for operator in program.operators] == ["The graph's code has more than 50 instructions."]
