"""Memory of models that are partly on LiteRT: partitions compute in one arena, one interpreter has LiteRT's tensors."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import jitdelegate
from jitdelegate.compiler import partitioned
from jitdelegate.engine.hosted_model import _CompiledKernel
from jitdelegate.engine.litert_delegate import callbacks
from jitdelegate.runtime import fallback
from jitdelegate.runtime.cpu.session import Session
from jitdelegate.runtime.memory import Memory, work_bytes
from jitdelegate.runtime.partitioned_session import PartitionedSession
from jitdelegate.tflite.write import ModelBuilder
from tests.api import partial_models as partial
from tests.api.partial_models import LOADERS

WIDTH = 2048
JUNK = 0xFF
"""Of every byte: not-a-number for floats, -1 for integers."""


def wide(count: int = 3, constant: bool = False) -> bytes:
    """f32[8,WIDTH] -> (TANH, MUL by TANH, ADD, NEG) several times, whose compiled partitions have an arena."""
    model = ModelBuilder()
    shape = (8, WIDTH)
    x = model.input(shape, name="x")
    for number in range(count):
        total = model.op("CUMSUM", [model.op("TANH", [x], shape), model.constant(np.int32([1]))], shape)
        both = model.op("MUL", [total, x], shape)
        x = model.op("NEG", [model.op("CUMSUM", [both, model.constant(np.int32([1]))], shape)], shape)
        if constant:
            x = model.op("MAXIMUM", [x, model.constant(np.full(shape, number, np.float32))], shape)
    model.output(x)
    return model.finish()


ONLY = ("CUMSUM", "MUL", "TANH")


def options(**further: Any) -> dict[str, Any]:
    return partial.options(only_ops=ONLY, num_threads=2) | further


def compiled_kernels() -> list[Any]:
    """Those in LiteRT's interpreters that are ours; other tests have kernels of their own."""
    return [kernel for kernel in callbacks.kernels.values() if isinstance(kernel._client_kernel, _CompiledKernel)]


def sessions(model: jitdelegate.Model) -> list[Session]:
    """Of the model's compiled partitions."""
    session = model._opened.session
    if isinstance(session, PartitionedSession):
        found: list[Any] = session._sessions()
    else:
        found = [kernel._client_kernel._session for kernel in compiled_kernels()]
    return found


def arenas(found: list[Session]) -> set[int]:
    return {each._opened_memory().arguments[0][0] for each in found}


@pytest.fixture(params=LOADERS)
def model(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[jitdelegate.Model]:
    gc.collect()
    partial.choose_loader(monkeypatch, request.param)
    with jitdelegate.load(wide(), options=options()) as model:
        model._opened.allocate()
        assert model._opened.program.loader == request.param
        yield model


def test_partitions_compute_in_one_arena_that_is_as_large_as_the_largest_needs(model: jitdelegate.Model) -> None:
    found, program = sessions(model), model._opened.program
    assert len(found) == 3 and len(arenas(found)) == 1
    needs = [work_bytes(each.program, 2) for each in found]
    assert min(needs) > 4 * 8 * WIDTH and work_bytes(program, 2) == max(needs)
    works = {(work.address, work.nbytes) for each in found if (work := each._opened_memory()._work) is not None}
    assert [nbytes for _, nbytes in works] == [max(needs)]


def test_what_others_leave_in_the_arena_changes_no_answer(model: jitdelegate.Model) -> None:
    rounds = partial.rounds_for(wide(), 2)
    wanted = partial.expected(wide(), rounds)
    for found in sessions(model):
        work = found._opened_memory()._work
        assert work is not None
        ctypes.memset(work.address, JUNK, work.nbytes)
    partial.assert_same(partial.called(model, rounds), wanted)


def test_the_last_partition_to_close_frees_the_arena(model: jitdelegate.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    (arena,), freed = arenas(sessions(model)), list[int]()
    close = Memory.close
    monkeypatch.setattr(Memory, "close", lambda memory: [freed.append(memory.address), close(memory)])
    first, *others = sessions(model)
    first.close()
    assert freed and arena not in freed
    for other in others:
        other.close()
    assert freed.count(arena) == 1


def test_interpreters_that_share_a_delegate_have_arenas_of_their_own() -> None:
    partial.skip_without_host()
    gc.collect()
    delegate = jitdelegate.GpuDelegate(**options())
    pair = [partial.LiteRT(model_content=wide(), experimental_delegates=[delegate]) for _ in range(2)]
    for interpreter in pair:
        interpreter.allocate_tensors()
    found: list[Any] = [kernel._client_kernel._session for kernel in compiled_kernels()]
    assert len(found) == 6 and len(arenas(found)) == 2


@pytest.mark.parametrize(("most", "loader"), [(1 << 16, "delegate"), (1 << 30, "partitions")])
@pytest.mark.parametrize("constant", [False, True])
def test_litert_s_interpreter_has_the_tensors_that_would_be_large_in_several(
    most: int, loader: str, constant: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    partial.skip_without_host()
    made: list[Any] = []
    create = fallback.Fallback._create
    monkeypatch.setattr(fallback.Fallback, "_create", lambda own: made.append(own) or create(own))
    monkeypatch.setattr(partitioned, "MOST_CROSSING", 1.0)
    monkeypatch.setattr(partitioned, "MOST_COPYING", 1.0)
    monkeypatch.setattr(partitioned, "MOST_BESIDE", most)
    content = wide(constant=constant)
    with jitdelegate.load(content, options=options()) as model:
        assert model._opened.program.loader == loader
        assert len(made) == (1 if loader == "delegate" else 3)
        rounds = partial.rounds_for(content, 1)
        partial.assert_same(partial.called(model, rounds), partial.expected(content, rounds))


def test_a_model_whose_own_tensors_would_be_copied_for_long_stays_in_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(partitioned, "MOST_CROSSING", 1.0)
    monkeypatch.setattr(partitioned, "MOST_COPYING", 0.0)
    monkeypatch.setattr(partitioned, "MOST_BESIDE", 1)
    with jitdelegate.load(wide(), options=options()) as model:
        assert model._opened.program.loader == "partitions"
