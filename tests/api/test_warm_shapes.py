"""Shapes of inputs that are compiled ahead: by `warm --input-shape` and by `Model.prepare`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jitdelegate
from jitdelegate.commands import warm
from jitdelegate.errors import DeviceError, TensorError
from jitdelegate.program.read import read
from jitdelegate.runtime.cache.store import counts
from jitdelegate.tflite.write import GraphBuilder, ModelBuilder
from tests.api import partial_models as partial

X, MASK = np.ones((2, 6), np.float32), np.full((2, 6), 3, np.float32)


def masked(graph: GraphBuilder, size: int = -1) -> tuple[int, int, int]:
    """f32[?,size] x, f32[?,size] mask:0 -> x * mask."""
    now, sizes = (1, abs(size)), (-1, size)
    x = graph.input(now, name="x", shape_signature=sizes)
    mask = graph.input(now, name="mask:0", shape_signature=sizes)
    y = graph.op("MUL", [x, mask], now)
    graph.output(y)
    return x, mask, y


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A model with signatures "short" and "long", of which the first takes any number of columns."""
    model = ModelBuilder()
    for number, (key, size) in enumerate((("short", -1), ("long", 128))):
        graph = model.subgraph(key) if number else model
        x, mask, y = masked(graph, size)
        model.signature(key, {"ids": x, "weights": mask}, {"y": y}, number)
    file = tmp_path / "model.tflite"
    file.write_bytes(model.finish())
    return str(file)


def run_warm(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    warm.main([*arguments, "--json"])
    (found,) = json.loads(capsys.readouterr().out)
    return dict(found)


def shapes_in(cache: Path) -> list[tuple[str, str]]:
    """(subgraph, shapes) of the entries."""
    programs = [read(entry.read_bytes()) for entry in cache.glob("*.jitd")]
    return sorted((program.part("subgraph"), program.part("shapes")) for program in programs)


def test_warm_compiles_every_set_of_sizes(path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cache = tmp_path / "cache"
    flags = ["--input-shape", "x=2x6:mask:0=2x6", "--input-shape", "ids=3,128:weights=3,128"]
    arguments = [path, "--target", "cpu", "--serialization-dir", str(cache), *flags]
    for state in ("compiled", "hit"):
        found = run_warm(capsys, *arguments)
        assert [(one["inputs"], one["state"]) for one in found["shapes"]] == [
            ({"x": [2, 6], "mask:0": [2, 6]}, state),
            ({"ids": [3, 128], "weights": [3, 128]}, state),
        ]
    sizes = [("", "2x6;2x6;"), ("", "3x128;3x128;"), ("1", "3x128;3x128;")]
    assert shapes_in(cache) == sorted([("", ""), ("1", ""), *sizes])
    assert warm.main(arguments) == 0
    assert "for x of [2, 6] and mask:0 of [2, 6]: hit" in capsys.readouterr().out
    counts.reset()
    with jitdelegate.load(path, target="cpu", serialization_dir=cache) as model:
        assert np.asarray(model(X, MASK)).tolist() == (X * MASK).tolist()
    assert (counts.misses, counts.writes) == ({}, 0)


def test_prepare_opens_programs_for_further_sizes(path: str, tmp_path: Path) -> None:
    with jitdelegate.load(path, target="cpu", serialization_dir=tmp_path / "cache") as model:
        model.prepare(shapes=[{"x": (2, 6), "1": (2, 6)}, {"x": (5, 6), "mask:0": (5, 6)}])
        written = counts.writes
        model(X, MASK)
        assert counts.writes == written


@pytest.mark.parametrize(
    ("shapes", "told"),
    [
        ({"z": (1, 2)}, r"no input is named 'z', expected one of \['x', 'mask:0', 'ids', 'weights'\]"),
        ({"x": (1, 2, 3)}, r"the shape of input 'x' is \[1, 2, 3\], expected \[-1, -1\], where -1 is any size"),
        ({"x": (0, 2)}, r"the shape of input 'x' is \[0, 2\], expected"),
    ],
)
def test_errors_name_the_input_and_what_was_expected(
    path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], shapes: dict[str, tuple[int, ...]], told: str
) -> None:
    with jitdelegate.load(path, serialization_dir=tmp_path / "cache") as model, pytest.raises(TensorError, match=told):
        model.prepare(shapes=[shapes])
    text = ":".join(f"{name}={'x'.join(map(str, sizes))}" for name, sizes in shapes.items())
    arguments = [path, "--serialization-dir", str(tmp_path / "cache"), "--input-shape", text]
    assert warm.main(arguments) == 1
    found = run_warm(capsys, *arguments)
    assert found["error"].startswith(told.partition(", expected")[0].replace("\\", ""))


def test_a_size_is_an_int32(path: str, tmp_path: Path) -> None:
    with (
        jitdelegate.load(path, serialization_dir=tmp_path / "cache") as model,
        pytest.raises(TensorError, match="shape"),
    ):
        model.prepare(shapes=[{"x": (1 << 31, 2)}])


def test_sizes_that_do_not_fit_together_are_told(path: str, tmp_path: Path) -> None:
    with jitdelegate.load(path, serialization_dir=tmp_path / "cache") as model, pytest.raises(DeviceError, match="fit"):
        model.prepare(shapes=[{"x": (2, 6), "mask:0": (2, 7)}])


@pytest.mark.parametrize("text", ["x", "x=", "x=2x", "=2x6", "x=2x6:", "x=2x6:y", "x=-1x2"])
def test_what_is_no_shape_is_a_wrong_argument(path: str, capsys: pytest.CaptureFixture[str], text: str) -> None:
    if text == "x=":  # a scalar's sizes
        assert warm.named_shapes(text) == {"x": ()}
        return
    with pytest.raises(SystemExit):
        warm.main([path, "--input-shape", text])
    assert "argument --input-shape" in capsys.readouterr().err


def test_no_more_shapes_are_taken_than_the_cache_keeps(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        warm.main([path, *(word for k in range(33) for word in ("--input-shape", f"x={k + 1}x6"))])
    assert "33 shapes, but the cache keeps 32" in capsys.readouterr().err


def test_shapes_are_compiled_for_gpus_that_are_not_here(
    path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("numba.cuda", reason="needs numba-cuda, the extra 'cuda'")
    cache = tmp_path / "cache"
    flags = ["--input-shape", "x=2x6:mask:0=2x6", "--input-shape", "x=1x1:mask:0=1x1"]
    found = run_warm(capsys, path, "--target", "cuda:sm_90", "--serialization-dir", str(cache), *flags)
    assert [one["state"] for one in found["shapes"]] == ["compiled", "hit"]  # the second ones are the file's
    assert shapes_in(cache) == [("", ""), ("", "2x6;2x6;"), ("1", "")]


def test_shapes_are_compiled_for_the_interpreter_of_litert(path: str, tmp_path: Path) -> None:
    partial.skip_without_host()
    from ai_edge_litert.interpreter import Interpreter

    cache = tmp_path / "cache"
    flags = ["--litert-interpreter", "--input-shape", "x=2x6:mask:0=2x6"]
    assert warm.main([path, "--target", "cpu", "--serialization-dir", str(cache), *flags]) == 0
    written = counts.writes
    delegate = jitdelegate.GpuDelegate(target="cpu", serialization_dir=cache)
    interpreter = Interpreter(path, experimental_delegates=[delegate])
    for detail, value in zip(interpreter.get_input_details(), (X, MASK), strict=True):
        interpreter.resize_tensor_input(detail["index"], value.shape)
    interpreter.allocate_tensors()
    for detail, value in zip(interpreter.get_input_details(), (X, MASK), strict=True):
        interpreter.set_tensor(detail["index"], value)
    interpreter.invoke()
    assert interpreter.get_tensor(interpreter.get_output_details()[0]["index"]).tolist() == (X * MASK).tolist()
    assert counts.writes == written
