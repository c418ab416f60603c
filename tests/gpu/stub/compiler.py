"""Stands in for the compiler of CUDA programs: whatever the model is, it is given the same program."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from jitdelegate.base.options import DelegateOptions
from jitdelegate.program.program import Operator, Program
from jitdelegate.program.write import parts
from jitdelegate.runtime.cache.key import Key
from jitdelegate.runtime.cuda import toolchain as toolchain_module
from jitdelegate.tflite.write import ModelBuilder
from tests.gpu.stub.programs import SCALE, SHIFT, scale_and_shift

if TYPE_CHECKING:
    from jitdelegate.program.program import FileParts
    from jitdelegate.tflite.read import Reading

TOOLCHAIN = "numba-cuda 0.30.4"
OUTPUT = 6
"""Index of the output of `scale_and_shift_model`."""


def scale_and_shift_model() -> bytes:
    """f32[2,3] -> x * 3 + 2.5 -> f32[3,2], which is what the stub's program computes."""
    model = ModelBuilder()
    x = model.input((2, 3), name="x")
    scaled = model.op("MUL", [x, model.constant(np.array([SCALE], np.float32))], (2, 3))
    shifted = model.op("ADD", [scaled, model.constant(np.array([SHIFT], np.float32))], (2, 3))
    shape = model.constant(np.array([3, 2], np.int32))
    model.output(model.op("RESHAPE", [shifted, shape], (3, 2), options={"new_shape": [3, 2]}, name="y"))
    return model.finish()


class Compiler:
    """Stands in for the compiler of CUDA programs; the CPU's is the real one.

    Attributes:
        keys: what it was asked for.
        error: what it raises.
        reason: why it leaves the model to LiteRT.
        output: index of the output of its program.
        changes: what else is different in it.
    """

    def __init__(self) -> None:
        from jitdelegate.compiler.compile import compile_model

        self._compile = compile_model
        self.keys: list[Key] = []
        self.error: Exception | None = None
        self.reason = ""
        self.output = 1
        self.changes: dict[str, Any] = {}

    def __call__(
        self,
        content: bytes,
        options: DelegateOptions,
        key: Key,
        seconds: MutableMapping[str, float],
        sources: Sequence[Program | None],
        reading: Reading | None = None,
    ) -> FileParts:
        self.keys.append(key)
        if key.part("target") != "cuda":
            return self._compile(content, options, key, seconds, sources, reading)
        if self.error:
            raise self.error
        return parts(self._litert(key) if self.reason else self._program(key))

    def _litert(self, key: Key) -> Program:
        operators = (Operator(index=0, op="MUL", place="litert", reason=self.reason),)
        ports = scale_and_shift()
        return Program(key=key.parts, target="litert", inputs=ports.inputs, outputs=ports.outputs, operators=operators)

    def _program(self, key: Key) -> Program:
        operators = tuple(
            Operator(index=index, op=op, place="cuda", kernel=min(index, 1)) for index, op in enumerate(("MUL", "ADD"))
        )
        made = scale_and_shift(key=key.parts, features=key.part("features"), operators=operators, **self.changes)
        made.outputs[0].index = self.output
        return made


def install_compiler(monkeypatch: pytest.MonkeyPatch, made: Compiler | None = None) -> Compiler:
    """The compiler that models are given to, and a toolchain that seems installed."""
    made = made or Compiler()
    monkeypatch.setattr("jitdelegate.compiler.compile.compile_model", made)
    monkeypatch.setattr(toolchain_module, "installed_toolchain", lambda: TOOLCHAIN)
    return made
