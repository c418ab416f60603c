"""Functions that are compiled apart: once for all programs of a process, and with the same results and bytes."""

from __future__ import annotations

import numpy as np
import pytest

from jitdelegate import passes
from jitdelegate.ir.graph import Graph
from jitdelegate.targets.cpu.code import machine
from jitdelegate.targets.cpu.entry import divide
from jitdelegate.targets.cpu.generate import generate
from tests.targets.execute import execute
from tests.targets.test_cpu_graphs import RUNNABLE, Network, pyramid

CALLED = "define internal void @tile_1(ptr %c) nounwind {\nentry:\n  ret void\n}\n"
CALLS = "define internal void @chunk_2(ptr %c) nounwind {\nentry:\n  call void @tile_1(ptr %c)\n  ret void\n}\n"


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Receives the text of each module that is compiled apart, of shorter functions too."""
    texts: list[str] = []
    compile_object = machine.compile_object

    def counted(ir: str, features: str) -> bytes:
        texts.append(ir)
        return compile_object(ir, features)

    monkeypatch.setattr(divide, "LEAST_APART", 4000)
    monkeypatch.setattr(machine, "compile_object", counted)
    monkeypatch.setattr(machine, "_KEPT", {})
    return texts


def layers(rows: int, *, is_deep: bool = False) -> Graph:
    """An image of so many rows through two convolutions, or another one before them."""
    net = Network(np.random.default_rng(0))
    x = net.input(1, rows, 8, 64)
    return passes.run(net.graph(net.conv(net.conv(net.conv(x, 64, 3) if is_deep else x, 64), 96)))


def test_a_further_shape_compiles_no_function_again(compiled: list[str]) -> None:
    first = generate(layers(12), RUNNABLE[-1])
    count = len(compiled)
    further = generate(layers(24), RUNNABLE[-1])
    assert count > 0
    assert len(compiled) == count
    machine._KEPT.clear()
    assert generate(layers(24), RUNNABLE[-1]).code == further.code != first.code


def test_names_and_other_functions_do_not_matter(compiled: list[str]) -> None:
    """What both networks have is compiled once, however much of it there is on this machine."""
    generate(layers(12), RUNNABLE[-1])
    count = len(compiled)
    generate(layers(12, is_deep=True), RUNNABLE[-1])
    both = [*compiled]
    machine._KEPT.clear()
    compiled.clear()
    generate(layers(12, is_deep=True), RUNNABLE[-1])
    assert len(both) == len({*both}) < count + len(compiled)


def test_hundreds_are_found_again_and_the_oldest_forgotten(
    compiled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    head = f'target triple = "{machine.triple(RUNNABLE[-1])}"\n'
    texts = [head + f"define i32 @apart() {{\n  ret i32 {number}\n}}\n" for number in range(200)]
    for text in texts * 2:
        assert machine.compile_again(text, RUNNABLE[-1])
    assert compiled == texts
    monkeypatch.setattr(machine, "MOST_KEPT", 2)
    for text in (head, texts[-1], texts[0]):
        machine.compile_again(text, RUNNABLE[-1])
    assert compiled == [*texts, head, texts[0]]


@pytest.mark.parametrize("features", RUNNABLE)
def test_results_are_the_same_bits(features: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = passes.run(pyramid(Network(np.random.default_rng(0))))
    feeds = [np.random.default_rng(1).normal(0, 1, graph.tensors[i].shape).astype(np.float32) for i in graph.inputs]
    found = []
    for least in (0, 1 << 30):
        monkeypatch.setattr(divide, "LEAST_APART", least)
        found.append(execute(graph, feeds, features))
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


def test_what_calls_others_or_reads_constants_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(divide, "LEAST_APART", 0)
    ir = 'target triple = "x"\n@table = internal constant [1 x i8] zeroinitializer\n' + CALLED + CALLS
    ir += CALLED.replace("tile_1", "read_3").replace("ret void", "%v = load i8, ptr @table\n  ret void")
    others, modules = divide.divide(ir)
    assert list(modules) == ["tile_1"]
    assert modules["tile_1"] == 'target triple = "x"\n' + CALLED.replace("internal void @tile_1", "void @apart")
    assert "declare hidden void @tile_1(ptr %c) nounwind\n" in others
    assert CALLS in others
    assert "@read_3(ptr %c) nounwind {" in others
