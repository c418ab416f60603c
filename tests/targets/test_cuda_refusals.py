"""Kernels on CUDA that refuse indices outside: program, session, requests and stub, with the PTX in the simulator."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import numpy as np
import pytest

from jitdelegate.errors import DeviceError, RefusedValueError
from jitdelegate.ir.graph import Graph
from jitdelegate.passes import FOLD, REWRITE
from jitdelegate.passes import run as rewrite
from jitdelegate.runtime.cuda.session import CudaSession
from jitdelegate.tflite.read import read
from tests.api.refusing_models import GATHER, REFUSING, Refusing, constant
from tests.gpu.stub.library import Library
from tests.targets.cuda_execute import assert_compiles_everywhere, templates_of
from tests.targets.cuda_session import session_of


def graph_of(content: bytes) -> Graph:
    return rewrite(read(content).graphs[0], passes=(*FOLD, *REWRITE))


@contextmanager
def opened(content: bytes, *, maps_pinned: bool = True) -> Iterator[tuple[CudaSession, Library]]:
    """A session on a device whose kernels reach pinned memory of the host, or do not."""
    with (
        patch("jitdelegate.runtime.cuda.context._held", {}),
        patch.object(
            Library.__init__, "__kwdefaults__", {**(Library.__init__.__kwdefaults__ or {}), "maps_pinned": maps_pinned}
        ),
    ):
        session, library = session_of(graph_of(content), "sm_90", (9, 0))
        try:
            yield session, library
        finally:
            session.close()


@pytest.mark.parametrize("maps_pinned", [True, False])
@pytest.mark.parametrize("name", REFUSING)
def test_what_litert_refuses_is_refused(name: str, maps_pinned: bool) -> None:
    case = REFUSING[name]
    with opened(case.content, maps_pinned=maps_pinned) as (session, _):
        expected = np.array(session.run(case.good)[0])
        for bad in (*case.bad, *case.beyond)[:: 1 if maps_pinned else 3]:
            with pytest.raises(RefusedValueError) as error:
                session.run(case.inputs(bad))
            assert case.words in str(error.value)
            np.testing.assert_array_equal(session.run(case.good)[0], expected)


class Request:
    """A request on pinned memory, so that it is enqueued at once."""

    def __init__(self, session: CudaSession, case: Refusing, bad: np.ndarray | None, *needs: Request) -> None:
        values = case.good if bad is None else case.inputs(bad)
        self.places = [session.make_place(number) for number in range(len(values) + 1)]
        for where, value in zip(self.places, values, strict=False):
            ctypes.memmove(where.address, value.tobytes(), value.nbytes)
        self.event = session.run_async(session.bind(self.places), [each.event for each in needs])

    def found(self) -> np.ndarray:
        where = self.places[-1]
        return np.frombuffer(ctypes.string_at(where.address, where.nbytes), np.float32).reshape(4, 5, 7)


def text_of(request: Request) -> str:
    with pytest.raises(DeviceError) as caught:
        request.event.wait()
    return str(caught.value)


@pytest.mark.parametrize("maps_pinned", [True, False])
def test_of_requests_on_their_way_the_refused_ones_fail(maps_pinned: bool) -> None:
    with opened(GATHER.content, maps_pinned=maps_pinned) as (session, library):
        library.is_halted = True
        bad = (None, GATHER.bad[0], None, GATHER.bad[1], GATHER.bad[2], None)
        requests = [Request(session, GATHER, each) for each in bad]
        texts = ["" if each is None else text_of(request) for request, each in zip(requests, bad, strict=True)]
        assert ["found 3" in texts[1], "found -1" in texts[3], "found 1003" in texts[4]] == [True] * 3
        for request in (requests[0], requests[2], requests[5]):
            request.event.wait()
            np.testing.assert_array_equal(request.found(), GATHER.good[0][GATHER.good[1]])
        library.is_halted = False
        session.run(GATHER.good)


def test_what_needs_a_refused_request_fails_in_a_chain_of_any_length() -> None:
    with opened(GATHER.content) as (session, library):
        library.is_halted = True
        chain = [Request(session, GATHER, GATHER.bad[0])]
        for _ in range(40):
            chain.append(Request(session, GATHER, None, chain[-1]))
        alone = Request(session, GATHER, None)
        assert "found 3" in text_of(chain[-1])
        alone.event.wait()
        library.is_halted = False


def test_a_measured_run_refuses_nothing_and_leaves_nothing_behind() -> None:
    with opened(GATHER.content) as (session, _):
        with pytest.raises(RefusedValueError):
            session.run(GATHER.inputs(GATHER.bad[0]))
        session.run_seconds(2)
        session.run(GATHER.good)


def test_a_check_takes_no_launch_copy_or_wait() -> None:
    """Where kernels reach pinned memory, as everywhere but in an old system."""
    counts = []
    for content, values in ((GATHER.content, GATHER.good), (constant(GATHER.good[1]), GATHER.good[:1])):
        with opened(content) as (session, library):
            session.run(values)
            before = library.calls.copy()
            session.run(values)
            counts.append(library.calls - before)
            launches = len(session.program.launches)
            assert launches == 1
    assert counts[0] == counts[1]


def test_kernels_that_refuse_assemble_for_every_gpu() -> None:
    for name in ("GATHER", "GATHER int64", "SCATTER_ND", "UNSORTED_SEGMENT_SUM"):
        assert_compiles_everywhere(templates_of(graph_of(REFUSING[name].content)))
