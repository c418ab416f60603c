"""Updates in place: which ports of a program may share memory, and that a cache in shared memory is not copied."""

from __future__ import annotations

import ctypes
import mmap
import random
import sys
from collections.abc import Sequence
from dataclasses import replace
from math import prod

import numpy as np
import pytest

from jitdelegate.ir.expr import Arg, Cast
from jitdelegate.ir.forms import Concat, IndexMap, Map, View
from jitdelegate.ir.graph import Graph, Node, Tensor
from jitdelegate.ir.index_forms import Update
from jitdelegate.passes.copy_outputs import copy_outputs
from jitdelegate.runtime.cpu.session import Session
from jitdelegate.targets.cpu.generate import generate
from jitdelegate.targets.cuda.code.gpu import gpu_of
from jitdelegate.targets.cuda.plan.plan import plan
from jitdelegate.targets.planning import steps
from jitdelegate.targets.planning.in_place import MOST_IN_CODE, aliases
from jitdelegate.targets.planning.parts import find_parts
from jitdelegate.targets.reference.evaluate import run_graph
from tests.targets.cuda_execute import run as run_on_cuda
from tests.targets.execute import program_of
from tests.targets.index_graphs import numbers
from tests.targets.levels import RUNNABLE

ROWS, COLUMNS = 3 * mmap.PAGESIZE // 64, 16
CACHE, ROW = (1, ROWS, COLUMNS), (1, 1, COLUMNS)


class Draft:
    """A graph that grows node by node."""

    def __init__(self, dtype: str = "float32") -> None:
        self.tensors: list[Tensor] = []
        self.nodes: list[Node] = []
        self.inputs: list[int] = []
        self.dtype = dtype

    def tensor(self, shape: Sequence[int], dtype: str = "", data: np.ndarray | None = None) -> int:
        self.tensors.append(Tensor(f"tensor{len(self.tensors)}", tuple(shape), dtype or self.dtype, data))
        return len(self.tensors) - 1

    def given(self, shape: Sequence[int], dtype: str = "") -> int:
        self.inputs.append(self.tensor(shape, dtype))
        return self.inputs[-1]

    def node(self, form: object, inputs: Sequence[int], shape: Sequence[int], dtype: str = "") -> int:
        output = self.tensor(shape, dtype)
        self.nodes.append(Node("OP", tuple(inputs), (output,), form=form))  # type: ignore[arg-type]
        return output

    def update(self, data: int, row: int, start: int) -> int:
        return self.node(Update(), (data, row, start), self.tensors[data].shape)

    def doubled(self, index: int, dtype: str = "") -> int:
        shape = self.tensors[index].shape
        return self.node(Map(Arg(0) + Arg(0), (IndexMap.broadcast(shape, shape),)), (index,), shape, dtype)

    def graph(self, *outputs: int) -> Graph:
        return Graph(tuple(self.tensors), tuple(self.nodes), tuple(self.inputs), outputs)


def cache_step(dtype: str = "float32") -> tuple[Draft, int, int, int, int]:
    """A draft with (cache, row, place, the updated cache), as a decoder has them."""
    draft = Draft(dtype)
    cache, row, place = draft.given(CACHE), draft.given(ROW), draft.given((1,), "int32")
    zero = draft.tensor((1,), "int32", np.zeros(1, np.int32))
    start = draft.node(Concat(axis=0), (zero, place, zero), (3,), "int32")
    return draft, cache, row, place, draft.update(cache, row, start)


def test_a_cache_and_its_update_may_share_memory() -> None:
    draft, *_, updated = cache_step()
    seen = draft.doubled(updated)
    assert aliases(draft.graph(seen, updated)) == ((0, 1),)


@pytest.mark.parametrize(("size", "expected"), [(1, ((0, 0),)), (2, ())])
def test_a_place_may_have_been_a_float(size: int, expected: object) -> None:
    """As converters of PyTorch models compute it."""
    draft = Draft()
    cache, row, place = draft.given((ROWS, COLUMNS)), draft.given((1, COLUMNS)), draft.given((1,), "int32")
    column = draft.node(
        Map(Arg(0), (IndexMap.along(0),)), (draft.tensor((size,), "float32", np.zeros(size, np.float32)),), (1,)
    )
    number = draft.node(Map(Cast(Arg(0), "float32"), (IndexMap.along(0),)), (place,), (1,))
    both = draft.node(Concat(axis=0), (number, column), (2,))
    start = draft.node(Map(Cast(Arg(0), "int32"), (IndexMap.along(0),)), (both,), (2,), "int32")
    assert aliases(draft.graph(draft.update(cache, row, start))) == expected


def test_views_and_several_updates_in_a_row_are_followed() -> None:
    draft, _, row, place, updated = cache_step()
    flat = draft.node(View(), (updated,), (ROWS, COLUMNS))
    start = draft.node(Concat(axis=0), (place, place), (2,), "int32")
    again = draft.update(flat, draft.node(View(), (row,), (1, COLUMNS)), start)
    assert aliases(draft.graph(draft.node(View(), (again,), CACHE))) == ((0, 0),)


def test_a_copy_of_an_input_may_share_its_memory() -> None:
    draft = Draft()
    given = draft.given((4, 5))
    copied = draft.node(Map(Arg(0), (IndexMap.broadcast((4, 5), (4, 5)),)), (given,), (4, 5))
    assert aliases(draft.graph(draft.doubled(given), copied)) == ((0, 1),)


def test_a_part_of_an_input_has_memory_of_its_own() -> None:
    draft = Draft()
    part = draft.node(Map(Arg(0), (IndexMap.along(0, 1),)), (draft.given((4, 5)),), (2, 5))
    assert aliases(draft.graph(part)) == ()


def test_a_cache_with_other_readers_keeps_its_memory() -> None:
    draft, cache, *_, updated = cache_step()
    assert aliases(draft.graph(draft.doubled(cache), updated)) == ()
    assert aliases(draft.graph(updated, updated)) == ()
    draft, _, row, place, updated = cache_step()
    between = draft.doubled(updated)
    start = draft.node(Concat(axis=0), (place, place, place), (3,), "int32")
    assert aliases(draft.graph(between, draft.update(updated, row, start))) == ()


def test_a_row_taken_from_the_cache_itself_forbids_shared_memory() -> None:
    draft = Draft()
    cache, place = draft.given(CACHE), draft.given((3,), "int32")
    row = draft.node(Map(Arg(0), (IndexMap.along(0, 1, 2),)), (cache,), ROW)
    assert aliases(draft.graph(draft.update(cache, row, place))) == ()


@pytest.mark.parametrize(("size", "expected"), [(MOST_IN_CODE, ((0, 0),)), (MOST_IN_CODE + 1, ())])
def test_a_place_from_the_weights_forbids_shared_memory(size: int, expected: object) -> None:
    """Weights may change during a run, and the run is repeated then: the first one must not have written elsewhere."""
    draft = Draft()
    cache, row = draft.given(CACHE), draft.given(ROW)
    table = draft.tensor((size,), "int32", np.arange(size, dtype=np.int32))
    start = draft.node(Map(Arg(0), (IndexMap.along(0),)), (table,), (3,), "int32")
    assert aliases(draft.graph(draft.update(cache, row, start))) == expected


def test_a_place_that_is_updated_itself_forbids_shared_memory() -> None:
    draft = Draft("int32")
    cache, row, counter = draft.given(CACHE), draft.given(ROW), draft.given((3,))
    counted = draft.update(counter, draft.given((1,)), draft.given((1,)))
    assert aliases(draft.graph(draft.update(cache, row, counted), counted)) == ((2, 1),)


def feeds_of(graph: Graph, place: int) -> list[np.ndarray]:
    shapes = [(graph.tensors[index].shape, graph.tensors[index].dtype) for index in graph.inputs]
    return [
        np.array([place], np.int32) if dtype == "int32" and shape == (1,) else numbers(shape, dtype, seed)
        for seed, (shape, dtype) in enumerate(shapes)
    ]


def run_in(session: Session, graph: Graph, feeds: Sequence[np.ndarray], shared: dict[int, int]) -> list[np.ndarray]:
    """The outputs of a run in which each output of `shared` lies in the memory of the input."""
    outputs = [np.empty(graph.tensors[index].shape, graph.tensors[index].dtype) for index in graph.outputs]
    for output, given in shared.items():
        outputs[output] = feeds[given]
    session.run_on([array.ctypes.data for array in (*feeds, *outputs)])
    return outputs


@pytest.mark.parametrize("features", RUNNABLE)
@pytest.mark.parametrize("dtype", ["float32", "int8", "int16", "bool", "int64"])
@pytest.mark.parametrize("place", [0, ROWS // 2, ROWS - 1, -5, 2**31 - 1])
def test_shared_memory_changes_no_answer(features: str, dtype: str, place: int) -> None:
    draft, *_, updated = cache_step(dtype)
    seen = draft.node(Map(Arg(0), (IndexMap.along(0, 1, 2),)), (updated,), (1, ROWS // 2, COLUMNS))
    graph = draft.graph(seen, updated)
    session = Session(program_of(graph, generate(graph, features), features), 2)
    feeds = feeds_of(graph, place)
    expected = run_graph(graph, feeds)
    for shared in ({}, {1: 0}):
        for found, wanted in zip(run_in(session, graph, [*map(np.copy, feeds)], shared), expected, strict=True):
            np.testing.assert_array_equal(found, wanted)
    session.close()


@pytest.mark.skipif(sys.platform != "linux", reason="protects pages through libc")
@pytest.mark.parametrize("features", RUNNABLE)
def test_a_cache_in_shared_memory_is_not_copied(features: str) -> None:
    """Pages around the updated row cannot be written: copying a cache onto itself would end the process."""
    draft, *_, updated = cache_step()
    seen = draft.doubled(updated)
    graph = draft.graph(seen, updated)
    session = Session(program_of(graph, generate(graph, features), features), 1)
    pages = mmap.mmap(-1, 3 * mmap.PAGESIZE)
    cache = np.frombuffer(pages, np.float32).reshape(CACHE)
    feeds = feeds_of(graph, ROWS // 2)
    cache[...], feeds[0] = feeds[0], cache
    expected = run_graph(graph, [feeds[0].copy(), *feeds[1:]])
    libc, start = ctypes.CDLL(None), cache.ctypes.data
    for page in (0, 2):
        address, size = ctypes.c_void_p(start + page * mmap.PAGESIZE), ctypes.c_size_t(mmap.PAGESIZE)
        assert libc.mprotect(address, size, mmap.PROT_READ) == 0
    found = run_in(session, graph, feeds, {1: 0})
    for one, wanted in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, wanted)
    session.close()


@pytest.mark.skipif(sys.platform != "linux", reason="protects pages through libc")
@pytest.mark.parametrize("shape", [(3, mmap.PAGESIZE), (33, 1001), (5,)])
def test_an_input_that_is_an_output_is_copied_to_other_memory_only(shape: tuple[int, ...]) -> None:
    draft = Draft("int8")
    copied = draft.node(Map(Arg(0), (IndexMap.broadcast(shape, shape),)), (draft.given(shape),), shape)
    graph = draft.graph(copied)
    session = Session(program_of(graph, generate(graph, RUNNABLE[0]), RUNNABLE[0]), 2)
    given = numbers(shape, "int8")
    np.testing.assert_array_equal(run_in(session, graph, [given], {})[0], given)
    size = -(-given.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
    pages = mmap.mmap(-1, size)
    fixed = np.frombuffer(pages, np.int8, given.size).reshape(shape)
    fixed[...] = given
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(fixed.ctypes.data), ctypes.c_size_t(size), mmap.PROT_READ) == 0
    np.testing.assert_array_equal(run_in(session, graph, [fixed], {0: 0})[0], given)
    session.close()


def test_what_is_computed_and_then_updated_is_not_copied_either() -> None:
    draft = Draft()
    cache, row, start = draft.given(CACHE), draft.given(ROW), draft.given((3,), "int32")
    updated = draft.update(draft.doubled(cache), row, start)
    graph = draft.graph(draft.doubled(updated))
    session = Session(program_of(graph, generate(graph, RUNNABLE[0]), RUNNABLE[0]), 1)
    assert session.program.arena_bytes < 2 * 4 * ROWS * COLUMNS
    feeds = [numbers(CACHE), numbers(ROW, seed=1), np.array([0, 7, 0], np.int32)]
    np.testing.assert_array_equal(session.run(feeds)[0], run_graph(graph, feeds)[0])
    session.close()


def test_an_updated_tensor_that_is_read_later_is_kept() -> None:
    draft = Draft()
    cache, row, start = draft.given((1, 9, 4)), draft.given((1, 2, 4)), draft.given((3,), "int32")
    own = draft.doubled(cache)
    updated = draft.update(own, row, start)
    graph = draft.graph(draft.doubled(own), draft.doubled(updated))
    feeds = [numbers((1, 9, 4)), numbers((1, 2, 4), seed=1), np.array([0, 3, 0], np.int32)]
    session = Session(program_of(graph, generate(graph, RUNNABLE[0]), RUNNABLE[0]), 1)
    for found in (session.run(feeds), run_on_cuda(graph, feeds)):
        for one, wanted in zip(found, run_graph(graph, feeds), strict=True):
            np.testing.assert_array_equal(one, wanted)
    session.close()


def test_on_cuda_a_cache_and_its_update_are_one_region_that_one_launch_writes_rows_of() -> None:
    draft, *_, updated = cache_step()
    graph = draft.graph(updated)
    planned = plan(graph, gpu_of("sm_80"), "float32")
    assert planned.offset(graph.inputs[0]) == planned.offset(graph.outputs[0])
    assert [launch.form for launch in planned.launches].count("Update") == 1
    other = replace(graph, outputs=(updated, 0))
    kept = plan(other, gpu_of("sm_80"), "float32")
    assert kept.offset(graph.inputs[0]) != kept.offset(updated)
    assert [launch.form for launch in kept.launches].count("Update") == 2


def test_on_cuda_caches_are_copied_before_their_copies_are_updated() -> None:
    """The copies are parts of one tensor."""
    draft = Draft()
    row, start = draft.given((1, 4)), draft.given((2,), "int32")
    caches = [draft.given((3, 4)) for _ in range(2)]
    updated = [draft.update(cache, row, start) for cache in caches]
    graph = draft.graph(draft.node(Concat(), (*updated, *caches), (12, 4)))
    feeds = [numbers(graph.tensors[index].shape, graph.tensors[index].dtype) for index in graph.inputs]
    np.testing.assert_array_equal(run_on_cuda(graph, feeds)[0], run_graph(graph, feeds)[0])


def random_graph(dice: random.Random) -> Graph:
    """Updates, Views, copies and sums of a few tensors of one shape, some of which are read again."""
    draft, rank = Draft(dice.choice(("float32", "int32"))), dice.randint(1, 3)
    shape = (*(dice.choice((1, 2, 3, 9)) for _ in range(rank)), dice.choice((4, 5, 17)))
    made, rows = [draft.given(shape) for _ in range(dice.randint(1, 3))], len(shape)
    given, starts = len(made), [draft.given((rows,), "int32") for _ in range(2)]
    for _ in range(dice.randint(1, 7)):
        kind, data = dice.random(), dice.choice(made)
        if kind < 0.6:
            window = tuple(dice.randint(1, size) for size in shape)
            part = Map(Arg(0), (IndexMap.along(*range(rows)),))
            row = draft.node(part, (dice.choice(made),), window) if dice.random() < 0.5 else draft.given(window)
            made.append(draft.update(data, row, dice.choice(starts)))
        elif kind < 0.75:
            made.append(draft.doubled(data))
        elif kind < 0.9:
            made.append(draft.node(View(), (draft.node(View(), (data,), (prod(shape),)),), shape))
        else:
            made.append(draft.node(Map(Arg(0), (IndexMap.broadcast(shape, shape),)), (data,), shape))
    outputs = dice.sample(made, min(len(made), dice.randint(1, 3)))
    return copy_outputs(draft.graph(*outputs, *made[given:][:1]))


@pytest.mark.parametrize("seed", range(24))
def test_random_graphs_answer_alike_in_shared_memory_and_on_their_own_results(seed: int) -> None:
    graph = random_graph(random.Random(seed))
    session = Session(program_of(graph, generate(graph, RUNNABLE[-1]), RUNNABLE[-1]), 2)
    feeds = [
        np.random.default_rng(seed).integers(-4, 12, graph.tensors[index].shape).astype(graph.tensors[index].dtype)
        for index in graph.inputs
    ]
    expected = run_graph(graph, feeds)
    for shared in ({}, {output: given for given, output in aliases(graph)}):
        own = [feed.copy() for feed in feeds]
        for _ in range(2):
            for found, wanted in zip(run_in(session, graph, own, shared), expected, strict=True):
                np.testing.assert_array_equal(found, wanted)
    session.close()


def update_by_a_part_of_itself() -> Graph:
    draft = Draft()
    given, place = draft.given((4, 64)), draft.given((2,), "int32")
    data = draft.doubled(given)
    part = draft.node(Map(Arg(0), (IndexMap.along(0, 1),)), (data,), (2, 64))
    return draft.graph(draft.update(data, part, place))


@pytest.mark.parametrize("architecture", ["sm_75", "sm_90"])
@pytest.mark.parametrize("start", [0, 1, 2])
def test_a_window_that_was_a_part_of_what_it_is_written_over(architecture: str, start: int) -> None:
    """Blocks have no order, so a launch must not write what it reads by another pointer."""
    graph = update_by_a_part_of_itself()
    feeds = [numbers((4, 64), "float32"), np.array([start, 0], np.int32)]
    found = run_on_cuda(graph, feeds, architecture)
    np.testing.assert_array_equal(found[0], run_graph(graph, feeds)[0])


def test_on_cuda_no_plan_lets_a_launch_write_what_it_reads_by_another_pointer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "find_parts", lambda graph, rules, fixed: find_parts(graph, rules))
    with pytest.raises(AssertionError, match="update writes what it reads by another pointer"):
        plan(update_by_a_part_of_itself(), gpu_of("sm_75"), "float32")


@pytest.mark.parametrize("seed", range(24))
def test_random_graphs_of_updates_answer_alike_on_cuda(seed: int) -> None:
    graph = random_graph(random.Random(seed))
    feeds = [numbers(graph.tensors[index].shape, graph.tensors[index].dtype) for index in graph.inputs]
    found = run_on_cuda(graph, feeds, ("sm_75", "sm_90")[seed % 2], schedule="random", seed=seed)
    for one, expected in zip(found, run_graph(graph, feeds), strict=True):
        np.testing.assert_array_equal(one, expected)
