"""Threads share only chunks: results depend neither on the number of threads nor on which one is late."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from math import inf

import numpy as np
import pytest

from jitdelegate import passes
from jitdelegate.base.targets import LEVELS
from jitdelegate.ir.expr import Arg
from jitdelegate.ir.forms import IndexMap
from jitdelegate.ir.graph import Graph
from jitdelegate.ir.layout import Layout
from jitdelegate.program.program import Program
from jitdelegate.runtime.cpu.session import Session
from jitdelegate.runtime.memory import LEARNT
from jitdelegate.targets.cpu.code.kernel import Address, Generator, Job, Memory, Step
from jitdelegate.targets.cpu.code.vector_ir import Module
from jitdelegate.targets.cpu.entry import schedule, step_table
from jitdelegate.targets.cpu.entry.architecture import architecture_of
from jitdelegate.targets.cpu.forms.map import Operand, map_jobs, whole
from jitdelegate.targets.cpu.generate import generate
from jitdelegate.targets.cpu.products import chunks, depthwise
from tests.targets.execute import execute, program_of
from tests.targets.test_cpu_graphs import RUNNABLE, Network, pyramid


def late_layers(net: Network) -> Graph:
    """Layers with more channels than pixels, with halos: two images, panels of two widths, few rows."""
    x = net.conv(net.input(2, 14, 14, 40), 352)
    x = net.conv(net.depthwise(x, 5, 2), 72)
    return net.graph(net.conv(net.depthwise(net.conv(x, 1000)), 40))


def tabled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs of any length call by tables."""
    monkeypatch.setattr(step_table, "FEWEST_STEPS", 1)
    monkeypatch.setattr(step_table, "LEAST_ALIKE", 0)


@pytest.fixture(params=[(pyramid, False), (late_layers, False), (pyramid, True), (late_layers, True)])
def many_chunks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[Graph, Program]:
    """A network in small chunks, with code for each call or by tables."""
    make, is_tabled = request.param
    if is_tabled:
        tabled(monkeypatch)
    monkeypatch.setattr(chunks, "SMALL_WORK", 1)
    monkeypatch.setattr(chunks, "CHUNK_WORK", 5000)
    monkeypatch.setattr(depthwise, "CHUNK_WORK", 5000)
    graph = passes.run(make(Network(np.random.default_rng(0))))
    return graph, program_of(graph, generate(graph, RUNNABLE[-1]), RUNNABLE[-1])


@pytest.mark.parametrize("threads", (2, 5, 8))
def test_every_run_gives_the_bits_of_a_single_thread(threads: int, many_chunks: tuple[Graph, Program]) -> None:
    graph, program = many_chunks
    random = np.random.default_rng(1)
    feeds = [[random.normal(0, 1, graph.tensors[i].shape).astype(np.float32) for i in graph.inputs] for _ in range(2)]
    alone, shared = Session(program, 1), Session(program, threads)
    expected = [[bytes(output) for output in alone.run(feed)] for feed in feeds]
    assert shared._memory is not None
    for turn in range(100):
        ctypes.memset(shared._memory._sync + LEARNT, 0, schedule.LINE)  # every run with workers
        assert [bytes(output) for output in shared.run(feeds[turn % 2])] == expected[turn % 2]
    alone.close()
    shared.close()


@pytest.mark.skipif(RUNNABLE[-1] == "generic", reason="no threads on this machine")
@pytest.mark.parametrize("threads", (2, 5))
def test_run_ids_and_counts_of_chunks_wrap_around(threads: int, many_chunks: tuple[Graph, Program]) -> None:
    graph, program = many_chunks
    feed = [np.ones(graph.tensors[i].shape, np.float32) for i in graph.inputs]
    session = Session(program, threads)
    expected = [bytes(output) for output in session.run(feed)]
    assert session._memory is not None
    sync, before = session._memory._sync, (1 << 32) - 6
    session.run(feed)
    session._stop_workers(session._memory)
    session._memory.clear_sync()
    ctypes.c_uint32.from_address(sync + schedule.RUN).value = before
    for step, count in enumerate(_shared_chunks(program)):
        words = sync + schedule.FIRST_STEP + step * schedule.STEP
        ctypes.c_uint32.from_address(words + schedule.RANGES * schedule.LINE).value = before * count % (1 << 32)
        for place in range(schedule.RANGES):
            ctypes.c_uint64.from_address(words + place * schedule.LINE).value = before << 32 | count
    for _ in range(12):
        ctypes.memset(sync + LEARNT, 0, schedule.LINE)  # every run with workers
        assert [bytes(output) for output in session.run(feed)] == expected
    assert ctypes.c_uint32.from_address(sync + schedule.RUN).value == 6
    session.close()


def _shared_chunks(program: Program) -> list[int]:
    """What one run adds to the count of each step: found by such a run."""
    probe = Session(program, 2)
    assert probe._memory is not None
    probe.run([bytes(port.nbytes) for port in program.inputs])
    steps = (program.sync_bytes - schedule.FIRST_STEP) // schedule.STEP
    first = probe._memory._sync + schedule.FIRST_STEP + schedule.RANGES * schedule.LINE
    found = [ctypes.c_uint32.from_address(first + step * schedule.STEP).value for step in range(steps)]
    probe.close()
    assert any(found)
    return found


@pytest.mark.parametrize(("channels", "size", "results"), [(32, 56, 5), (480, 14, 96)])
def test_large_convolutions_have_chunks_for_many_threads(channels: int, size: int, results: int) -> None:
    """Five results of many pixels fill a vector like sixteen; few pixels meet one panel after another. float16 weights
    are converted once for many pixels."""
    net = Network(np.random.default_rng(0))
    x = net.conv(net.input(1, size, size, channels), results)
    weights = next(number for number, tensor in enumerate(net.tensors) if tensor.name == "weights")
    data = net.tensors[weights].data
    assert data is not None
    net.tensors[weights] = replace(net.tensors[weights], data=data.astype(np.float16).astype(np.float32))
    (kernel,) = (each for each in generate(passes.run(net.graph(x)), "x86-64-v4").kernels if each.form == "Contract")
    assert kernel.chunks >= chunks.FEWEST_CHUNKS // 2


def test_a_step_is_shared_if_its_work_is_worth_it() -> None:
    assert not Step("Contract", [Job("a", 1)]).is_shared
    assert Step("Contract", [Job("a", 1), Job("b", 1)]).is_shared
    assert not Step("Map", [Job("a", 4, worth=0.5), Job("b", 4, worth=0.25)]).is_shared
    assert Step("Map", [Job("a", 4, worth=1.5), Job("b", 4, worth=0.75)]).is_shared


def test_parts_of_the_same_rows_are_cut_alike() -> None:
    """Threads that are in different rows write to different cache lines."""
    machine = LEVELS[RUNNABLE[-1]]
    generator = Generator(machine, Module(machine))
    shape = (1, 64, 64, 28)
    memory = Memory("arena", 0, Layout(shape, machine.lanes))
    operand = Operand(memory, shape, IndexMap.along(0, 1, 2, 3), "float32")
    wide, narrow = (
        map_jobs(generator, memory, shape, Arg(0), (operand,), whole(shape).between(3, *ends))
        for ends in ((0, 24), (24, 28))
    )
    assert [job.chunks for job in wide] == [job.chunks for job in narrow] == [7]


@pytest.mark.parametrize("features", RUNNABLE)
def test_calls_by_tables_give_the_same_bits(features: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = passes.run(pyramid(Network(np.random.default_rng(0))))
    feeds = [np.random.default_rng(1).normal(0, 1, graph.tensors[i].shape).astype(np.float32) for i in graph.inputs]
    expected = execute(graph, feeds, features)
    tabled(monkeypatch)
    for one, other in zip(execute(graph, feeds, features), expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_calls_of_equal_layers_need_no_code_of_their_own() -> None:
    """Lines of the calling functions, as many for 600 layers as for 1200, and for few large ones."""

    def lines(count: int, worth: float) -> int:
        module = Module(LEVELS["generic"])
        jobs = (
            Job("layer", 2 + n % 2, (Address("arena", n), Address("io", n, 8), Address("code", 0)), worth)
            for n in range(count)
        )
        steps = [Step("Map", [job]) for job in jobs]
        schedule.write_entries(module, steps, architecture=architecture_of(""), has_threads=False)
        return sum(function.count("\n") for function in module.functions)

    large = step_table.FEWEST_STEPS // step_table.STEPS_OF_SHARED
    assert lines(600, 0) == lines(1200, 0) == lines(large, inf)
    assert lines(step_table.FEWEST_STEPS - 1, 0) > lines(1200, 0) < lines(large - 1, inf)
