"""ONNX Runtime as a side, by a stand-in for its module: the file beside the model, inputs and outputs by name."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from jitdelegate.base.options import DelegateOptions
from jitdelegate.commands.measurement.entry import Entry, find_entry
from jitdelegate.commands.measurement.sides import open_side
from jitdelegate.errors import DeviceError, JitDelegateError, ModelError
from jitdelegate.tflite.write import ModelBuilder


class Session:
    """Computes the first input minus the second one, and their sum."""

    names: tuple[tuple[str, ...], ...] = ("a", "b"), ("difference", "total")

    def __init__(self, path: str, options: Any, providers: list[str]) -> None:
        if Path(path).read_bytes() == b"broken":
            raise OverflowError("no\nprotobuf")
        self.options, self.runs, self.values = options, 0, dict[str, np.ndarray]()

    def get_inputs(self) -> list[SimpleNamespace]:
        return [SimpleNamespace(name=name) for name in self.names[0]]

    def get_outputs(self) -> list[SimpleNamespace]:
        return [SimpleNamespace(name=name) for name in self.names[1]]

    def io_binding(self) -> Session:
        return self

    def bind_cpu_input(self, name: str, value: np.ndarray) -> None:
        self.values[name] = value

    def bind_output(self, name: str) -> None:
        assert name in self.names[1]

    def run_with_iobinding(self, binding: Session) -> None:
        self.runs += 1

    def copy_outputs_to_cpu(self) -> list[np.ndarray]:
        first, second = (self.values[name] for name in self.names[0])
        return [first - second, first + second]


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> type[Session]:
    """The class of the sessions of a stand-in for the module."""
    module: Any = ModuleType("onnxruntime")
    module.__spec__ = ModuleSpec("onnxruntime", None)
    own = type("Own", (Session,), {})
    module.InferenceSession, module.SessionOptions = own, SimpleNamespace
    monkeypatch.setitem(sys.modules, "onnxruntime", module)
    return own


@pytest.fixture
def entry(tmp_path: Path) -> Entry:
    """Inputs "a" and "b", outputs "total" and "difference", with a .onnx file beside it."""
    model = ModelBuilder()
    a, b = (model.input((2,), name=name) for name in "ab")
    for name, op in (("total", "ADD"), ("difference", "SUB")):
        model.output(model.op(op, [a, b], (2,), name=name))
    (tmp_path / "m.tflite").write_bytes(model.finish())
    (tmp_path / "m.onnx").touch()
    return find_entry(str(tmp_path / "m.tflite"), DelegateOptions())


VALUES = [np.array([4.0, 5.0], np.float32), np.array([1.0, 3.0], np.float32)]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ((("b", "a"), ("difference", "total")), [[5, 8], [-3, -2]]),
        ((("x", "y"), ("total", "difference")), [[3, 2], [5, 8]]),
        ((("x", "y"), ("p", "q")), [[3, 2], [5, 8]]),
    ],
)
def test_values_go_by_names_or_else_in_order(
    session: type[Session], entry: Entry, names: tuple[tuple[str, ...], ...], expected: list[list[int]]
) -> None:
    session.names = names
    side = open_side("onnxruntime", entry, DelegateOptions(), 3)
    side.set_inputs(VALUES)
    side.run()
    assert [output.tolist() for output in side.outputs()] == expected
    made: Any = side
    assert (made._binding.runs, made._binding.options.intra_op_num_threads) == (1, 3)


def test_what_onnx_runtime_cannot_run_is_one_sentence(session: type[Session], entry: Entry) -> None:
    def refusal(kind: type[JitDelegateError]) -> str:
        with pytest.raises(kind) as error:
            open_side("onnxruntime", entry, DelegateOptions(), 1).set_inputs(VALUES)
        return str(error.value)

    session.names = ("a",), ("total",)
    assert refusal(ModelError) == "the .onnx file has 1 inputs, but the model has 2"
    onnx = Path(str(entry.source)).with_suffix(".onnx")
    onnx.write_bytes(b"broken")
    assert refusal(DeviceError) == "ONNX Runtime cannot run this model: no protobuf"
    onnx.unlink()
    assert refusal(ModelError) == "ONNX Runtime needs a .onnx file of the same name beside the .tflite file"
