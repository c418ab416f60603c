"""Failures of parts of the compiler: the operators that they concern run on LiteRT, whatever the target is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

import jitdelegate
from jitdelegate import passes
from jitdelegate.compiler import compile as compiler
from jitdelegate.errors import CompilerFailedError, DelegateWarning, DelegationError
from jitdelegate.ir import faults
from jitdelegate.ir.graph import Graph
from jitdelegate.ops import OPS
from jitdelegate.targets.cpu import generate
from jitdelegate.targets.cpu.forms import map
from jitdelegate.tflite.write import ModelBuilder
from scripts import inject_faults
from scripts.inject_faults import CAUSE, WAYS, Place, broken_part, many_ops, trouble
from tests.api import partial_models as partial
from tests.api import programs
from tests.child import in_child

EVERY = 9
"""Of the methods of operators and of CUDA's places, tests take each ninth; `python -m scripts.inject_faults` all."""
PARTS = 4
SHAPE = (2, 3)
X = np.random.default_rng(0).uniform(-2, 2, SHAPE).astype(np.float32)
TOLD = "the compiler failed with RuntimeError: injected."


@cache
def sample() -> list[Place]:
    """Places in the compiler that fail, one at a time."""
    places = list(inject_faults.places())
    assert len({place.name for place in places}) == len(places) > 550
    many = [place for place in places if " of " in place.name or place.target == "cuda"]
    return [*(place for place in places if place not in many), *many[::EVERY]]


@pytest.mark.parametrize("part", range(PARTS))
def test_models_run_whatever_fails(tmp_path: Path, part: int) -> None:
    wrong = {}
    for count, place in enumerate(sample()[part::PARTS]):
        told = trouble(place, tmp_path / str(count), WAYS[bool(place.op)])
        if told:
            wrong[place.name] = told
    assert wrong == {}


@contextmanager
def failing(
    owner: Any, attribute: str, when: Callable[..., bool], error: Callable[[], Exception]
) -> Iterator[list[Any]]:
    """Raise an error in a function whenever its arguments are so; the list receives all calls' arguments."""
    found, calls = getattr(owner, attribute), list[Any]()

    def call(*arguments: Any, **named: Any) -> Any:
        calls.append(arguments)
        if when(*arguments):
            raise error()
        return found(*arguments, **named)

    with patch.object(owner, attribute, call):
        yield calls


def injected() -> RuntimeError:
    return RuntimeError("injected\nin many\nlines")


def chain(*names: str) -> bytes:
    """Unary operators, one behind the other."""
    model = ModelBuilder()
    value = model.input(SHAPE, name="x")
    for name in names:
        value = model.op(name, [value], SHAPE)
    model.output(value)
    return model.finish()


NAMES = ("ABS", "TANH", "NEG", "EXP", "TANH", "SIN", "COS", "LOGISTIC", "ABS")


def computes(graph: Graph, name: str) -> bool:
    return any(node.op == name for node in graph.nodes)


@pytest.mark.parametrize("target", ["auto", "cpu"])
def test_halves_of_a_graph_tell_which_operator_a_planner_fails_for(tmp_path: Path, target: str) -> None:
    content = chain(*NAMES, *(["ABS"] if target == "cpu" else []))  # a model is told about once
    with (
        pytest.warns(DelegateWarning, match="SIN: the compiler failed with RuntimeError: injected"),
        failing(generate, "plan", lambda graph, *_: computes(graph, "SIN"), injected),
        patch.object(passes, "REWRITE", (passes.lower,)),  # nothing is fused
    ):
        model = jitdelegate.load(content, target=target, serialization_dir=tmp_path, options={"partitioning": "all"})
        report = model.report()
    assert [(one.op, one.reason) for one in report.operators if one.place == "litert"] == [("SIN", TOLD)]
    np.testing.assert_allclose(np.asarray(model(X)), expected(content), rtol=1e-5)


def test_compilations_of_a_planner_that_always_fails_are_bounded(tmp_path: Path) -> None:
    content = chain(*(NAMES * 8))
    with failing(generate, "plan", lambda *_: True, injected) as calls:
        model = jitdelegate.load(content, serialization_dir=tmp_path)
    compiled = sum(len(arguments[0].nodes) for arguments in calls)
    assert compiled <= 4 * len(NAMES) * 8, "as many nodes as four compilations have"
    assert model.report().target == "litert"
    np.testing.assert_allclose(np.asarray(model(X)), expected(content), rtol=1e-5)


def test_a_writer_that_fails_for_ever_other_nodes_ends(tmp_path: Path) -> None:
    """Each round the node that comes first, whichever that is."""
    content = chain(*(["TANH", "EXP"] * 30))
    seen: set[int] = set()

    def first(writer: Any, node: Any, *_: Any) -> bool:
        is_first = id(writer) not in seen
        seen.add(id(writer))
        kept.append(writer)
        return is_first

    kept: list[Any] = []
    with failing(map, "write_map", first, injected), patch.object(passes, "REWRITE", (passes.lower,)):
        model = jitdelegate.load(content, serialization_dir=tmp_path, options={"partitioning": "all"})
    assert len(seen) < 20
    np.testing.assert_allclose(np.asarray(model(X)), expected(content), rtol=1e-5)


def expected(content: bytes) -> np.ndarray:
    return partial.expected(content, [[X]])[0][0]


@pytest.mark.parametrize("road", partial.ROADS)
def test_every_road_obeys(road: str) -> None:
    content = chain("ABS", "SIN", "NEG")
    with failing(OPS["SIN"], "lower", lambda *_: True, injected):
        found = partial.ROADS[road](content, [[X]], only_ops=None)
    partial.assert_same(found, partial.expected(content, [[X]]))


def test_signatures_and_other_shapes_obey(tmp_path: Path) -> None:
    model = ModelBuilder()
    x = model.input((1, 3), name="x", shape_signature=(-1, 3))
    model.output(model.op("NEG", [model.op("SIN", [model.op("ABS", [x], (1, 3))], (1, 3))], (1, 3)))
    second = model.subgraph("second")
    own = second.input((1, 3), name="own", shape_signature=(-1, 3))
    y = second.op("SIN", [own], (1, 3), name="y")
    second.output(y)
    model.signature("second", {"own": own}, {"y": y}, graph=1)
    content = model.finish()
    with failing(OPS["SIN"], "lower", lambda *_: True, injected):
        loaded = jitdelegate.load(content, serialization_dir=tmp_path, options={"partitioning": "all"})
        np.testing.assert_allclose(np.asarray(loaded(X)), -np.sin(np.abs(X)), rtol=1e-5)
        np.testing.assert_allclose(np.asarray(loaded.run({"own": X}, "second")["y"]), np.sin(X), rtol=1e-5)


def test_full_delegation_is_an_error_that_names_the_cause() -> None:
    with failing(OPS["SIN"], "lower", lambda *_: True, injected), pytest.raises(DelegationError, match=TOLD):
        options = {"require_full_delegation": True}
        jitdelegate.load(chain("ABS", "SIN"), target="cpu", serialization_dir=False, options=options)


@pytest.mark.parametrize("make", [MemoryError, lambda: OSError(24, "Too many open files"), SystemError])
def test_a_machine_without_memory_or_files_is_no_fault_and_not_remembered(
    tmp_path: Path, make: Callable[[], Exception]
) -> None:
    content = chain("ABS", "SIN")
    with failing(OPS["SIN"], "lower", lambda *_: True, make):
        model = jitdelegate.load(content, serialization_dir=tmp_path)
        np.testing.assert_allclose(np.asarray(model(X)), expected(content), rtol=1e-5)
        with pytest.raises(CompilerFailedError, match=f"the compiler failed with {type(make()).__name__}"):
            jitdelegate.load(content, target="cpu", serialization_dir=tmp_path)
    assert not [*tmp_path.glob("*.jitd")]
    assert jitdelegate.load(content, serialization_dir=tmp_path).report().fully_delegated


def test_a_pass_that_fails_is_left_out_and_the_report_says_so_at_every_start(tmp_path: Path) -> None:
    content = many_ops()
    broken = broken_part("fuse_elementwise", [])
    chosen = tuple(broken if each.__name__ == "fuse_elementwise" else each for each in passes.REWRITE)
    for _ in range(2):
        with patch.object(passes, "REWRITE", chosen):
            report = jitdelegate.load(content, serialization_dir=tmp_path).report()
        assert report.fully_delegated
        note = f"compiled without the pass fuse_elementwise: {CAUSE}."
        assert [each for each in report.notes if "without" in each] == [note]


def test_a_program_that_cannot_be_written_is_not_remembered(tmp_path: Path) -> None:
    content = chain("ABS", "SIN")
    with patch.object(compiler, "parts", side_effect=injected):
        model = jitdelegate.load(content, serialization_dir=tmp_path)
        np.testing.assert_allclose(np.asarray(model(X)), expected(content), rtol=1e-5)


def test_one_line_tells_a_failure_of_many_operators() -> None:
    def broken(*_: Any) -> None:
        raise injected()

    with patch.object(generate, "compile_object", broken), pytest.warns(DelegateWarning) as caught:
        jitdelegate.load(chain("ABS", "NEG", "EXP"), serialization_dir=False)
    (told,) = [str(each.message) for each in caught]
    assert told.splitlines()[1:] == [
        f"ABS, NEG, EXP: {TOLD}",
        "Please report what the compiler failed with, and what JITDELEGATE_DEBUG=2 shows.",
        "No operations will run on compiled CPU code, and all 3 operations will run on LiteRT's CPU kernels.",
    ]


def test_the_debug_log_has_the_traceback(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(faults, "DEBUG_LEVEL", 1)
    logged: list[str] = []
    monkeypatch.setattr(faults, "log", logged.append)
    with failing(OPS["SIN"], "lower", lambda *_: True, injected):
        jitdelegate.load(chain("ABS", "SIN"), serialization_dir=False)
    assert any("Traceback (most recent call last)" in text and "in many" in text for text in logged)


def test_an_llvm_that_is_too_old_is_one_sentence(tmp_path: Path) -> None:
    """It prints what it does not know on stderr, once per kernel."""
    done = in_child(programs.load_twice_with_an_old_llvm, tmp_path, flags=["-W", "ignore"])
    first, second = done.stdout.splitlines()
    assert first.startswith("miss the compiler is too old: llvmlite ")
    assert "has LLVM 15, expected LLVM 20 or later" in first
    assert second.startswith("hit the compiler is too old: llvmlite ")
    assert [line for line in done.stderr.splitlines() if not line.startswith("INFO: ")] == []
