"""Graphs whose launches begin early, and graphs with branches, on a driver without a GPU."""

from __future__ import annotations

import random
import struct
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pytest

from jitdelegate.errors import ProgramError
from jitdelegate.program.program import Kernel, Launch, Port, Program
from jitdelegate.runtime.cuda import route
from jitdelegate.runtime.cuda.device import Device
from jitdelegate.runtime.cuda.driver import Driver
from jitdelegate.runtime.cuda.session import CudaSession
from tests.gpu.stub import library as stub
from tests.gpu.stub.capture import MissingEdgeError
from tests.gpu.stub.cubins import cubin
from tests.gpu.stub.library import Launched, Library, Value
from tests.gpu.stub.memory import DeviceMemory
from tests.gpu.stub.programs import floats, opened, packed, scale_and_shift

X, EXPECTED = np.float32([1, 2, 3, 4]), np.float32([20, 40, 60, 80])
X_OFFSET, Y_OFFSET, ARENA = 768, 1024, 768
ONE = (1, 1, 1)
FIRST, LEFT, RIGHT = 0, 256, 512
"""Offsets of x + x, of three times that, and of seven times that, whose sum is y."""


def scale(values: list[Value], memory: DeviceMemory) -> None:
    """(y, x, factor): y = x * factor"""
    y, x, factor = values
    memory.write(int(y), (floats(memory, int(x), 4) * np.float32(factor)).tobytes())


def add(values: list[Value], memory: DeviceMemory) -> None:
    """(y, a, b): y = a + b"""
    y, a, b = map(int, values)
    memory.write(y, (floats(memory, a, 4) + floats(memory, b, 4)).tobytes())


KERNELS = {"first": scale, "scale": scale, "add": add}
KINDS = {"first": "apf", "scale": "aaf", "add": "paa"}


@dataclass(frozen=True)
class Order:
    """Which stream a launch is in, what it waits for, and whether it begins early."""

    stream: int = 0
    waits: tuple[int, ...] = ()
    is_dependent: bool = False


ROW = (Order(), Order(is_dependent=True), Order(is_dependent=True), Order(is_dependent=True))
BRANCHES = (Order(), Order(is_dependent=True), Order(1, waits=(0,)), Order(waits=(2,)))


def diamond(orders: tuple[Order, ...], *further: Launch) -> Program:
    """y = 3 * (2 * x) + 7 * (2 * x), in four launches, and further ones."""
    code, offsets = packed(*map(cubin, KERNELS))
    two, three, seven = (struct.unpack("<I", struct.pack("<f", factor))[0] for factor in (2, 3, 7))
    launches = (
        (0, (FIRST, X_OFFSET, two)),
        (1, (LEFT, FIRST, three)),
        (1, (RIGHT, FIRST, seven)),
        (2, (Y_OFFSET, LEFT, RIGHT)),
    )
    names = list(KERNELS)
    own = tuple(
        Launch(kernel=kernel, grid=ONE, block=(32, 1, 1), kinds=KINDS[names[kernel]], values=values, **asdict(order))
        for (kernel, values), order in zip(launches, orders, strict=True)
    )
    return scale_and_shift(
        inputs=(Port(name="x", index=0, shape=(4,), dtype="float32", nbytes=16),),
        outputs=(Port(name="y", index=1, shape=(4,), dtype="float32", nbytes=16),),
        kernels=tuple(Kernel(name=name, form="Map", chunks=1, threads=32) for name in names),
        arena_bytes=ARENA,
        entries=tuple(zip(names, offsets, strict=True)),
        launches=(*own, *further),
        input_offsets=(X_OFFSET,),
        output_offsets=(Y_OFFSET,),
        code=code,
        weights=b"",
    )


def library(**arguments: Any) -> Library:
    return Library(lambda launched, memory: KERNELS[launched.name](launched.values, memory), KINDS, **arguments)


def opened_session(driver: Library, orders: tuple[Order, ...]) -> CudaSession:
    return CudaSession(opened(diamond(orders)), Device(Driver(driver), 0))


def answers(driver: Library, orders: tuple[Order, ...]) -> bool:
    """Whether a session computes the right numbers, the second time too; it leaves nothing behind."""
    running = opened_session(driver, orders)
    found = [np.asarray(running.run([X])[0]) for _ in range(2)]
    assert not running.graph_failure
    running.close()
    assert driver.leaks() == []
    return all(np.array_equal(one, EXPECTED) for one in found)


@pytest.mark.parametrize("orders", [ROW, BRANCHES], ids=["row", "branches"])
def test_launches_that_wait_for_one_kernel_begin_early(orders: tuple[Order, ...]) -> None:
    driver = library()
    assert answers(driver, orders)
    early = sum(order.is_dependent for order in orders)
    assert (driver.calls["cuLaunchKernel"], driver.calls["cuLaunchKernelEx"]) == (4 - early, early)


def test_a_driver_whose_graphs_cannot_do_it_gets_launches_as_ever() -> None:
    driver = library(version=12020)
    assert answers(driver, ROW) and answers(driver, BRANCHES)
    assert driver.calls["cuLaunchKernelEx"] == 0


@pytest.mark.parametrize("seed", range(4))
def test_branches_may_run_in_any_order(seed: int) -> None:
    driver = library()
    driver.choose = random.Random(seed).choice
    assert answers(driver, BRANCHES)


@pytest.mark.parametrize(
    "orders",
    [
        (*BRANCHES[:2], Order(1), BRANCHES[3]),
        (*BRANCHES[:3], Order()),
        (BRANCHES[0], Order(2), *BRANCHES[2:]),
    ],
    ids=["fork", "join", "both"],
)
def test_a_missing_edge_is_seen(orders: tuple[Order, ...]) -> None:
    running = opened_session(library(), orders)
    with pytest.raises(MissingEdgeError):
        running.run([X])


def test_a_branch_that_nobody_waits_for_ends_before_the_run_does() -> None:
    """The capture is joined, which the driver demands; the first order runs the branch at the end."""
    driver = library()
    assert answers(driver, (*BRANCHES[:3], Order(waits=(2,)))[:4])
    lonely = (Order(), Order(), Order(), Order(1, waits=(2,)))
    assert answers(driver, lonely)


def test_without_a_graph_launches_run_one_after_another() -> None:
    driver = library()
    running = CudaSession(opened(diamond(BRANCHES)), Device(Driver(driver), 0), profile=True)
    np.testing.assert_array_equal(np.asarray(running.run([X])[0]), EXPECTED)
    assert driver.calls["cuLaunchKernelEx"] == driver.calls["cuStreamWaitEvent"] == 0


def copies(driver: Library) -> tuple[int, int]:
    """Copies to the device and from it so far."""
    return driver.calls["cuMemcpyHtoDAsync_v2"], driver.calls["cuMemcpyDtoHAsync_v2"]


@pytest.mark.parametrize("orders", [ROW, BRANCHES], ids=["row", "branches"])
def test_kernels_read_and_write_small_pinned_memory_themselves(orders: tuple[Order, ...]) -> None:
    driver = library(maps_pinned=True)
    assert answers(driver, orders)
    assert copies(driver) == (0, 0)


def test_what_is_large_or_read_by_many_blocks_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(route, "MOST_WRITTEN", 15)
    driver = library(maps_pinned=True)
    assert answers(driver, ROW)
    assert copies(driver) == (0, 1)
    monkeypatch.setattr(route, "MOST_READ", 15)
    assert answers(driver, ROW)
    assert copies(driver) == (1, 2)


def test_an_output_that_a_launch_reads_is_copied() -> None:
    """The sum is an operand of a launch after it, which writes to the arena."""
    last = Launch(kernel=2, grid=ONE, block=(32, 1, 1), kinds="aap", values=(FIRST, LEFT, Y_OFFSET))
    driver = library(maps_pinned=True)
    running = CudaSession(opened(diamond(ROW, last)), Device(Driver(driver), 0))
    np.testing.assert_array_equal(np.asarray(running.run([X])[0]), EXPECTED)
    assert copies(driver) == (0, 1)


def test_an_output_that_lies_where_an_input_does_is_copied_as_the_input_is() -> None:
    """A launch could write it before another one reads the input."""
    host = 1 << 12
    made = route.Route(diamond(ROW), [host] * 2, [0, 0], lambda offset: offset << 10, lambda address: address)
    assert made.uploads == [(X_OFFSET << 10, host, 16)]
    assert made.downloads == [(host, Y_OFFSET << 10, 16)]


@pytest.mark.parametrize("first", [0, 8])
def test_an_output_of_which_a_launch_reads_a_part_is_copied(first: int) -> None:
    last = Launch(kernel=2, grid=ONE, block=(32, 1, 1), kinds="aap", values=(FIRST, LEFT, Y_OFFSET + first))
    made = route.Route(diamond(ROW, last), [1 << 12, 1 << 13], [0, 0], lambda offset: offset << 10, lambda host: host)
    assert (made.uploads, made.downloads) == ([], [(1 << 13, Y_OFFSET << 10, 16)])


@pytest.mark.parametrize("name", ["cuLaunchKernelEx", "cuStreamWaitEvent", "cuGraphInstantiateWithFlags"])
def test_where_the_driver_refuses_such_a_graph_the_graph_is_a_row(name: str) -> None:
    driver = library()
    driver.fail(name, stub.INVALID_VALUE)
    assert answers(driver, BRANCHES)
    before = driver.calls["cuLaunchKernel"]
    running = opened_session(driver, BRANCHES)
    running.run_seconds(1, copies=False)
    assert driver.calls["cuLaunchKernel"] > before


def test_a_run_finds_nothing_of_the_run_before_it() -> None:
    lost: list[str] = []

    def execute(launched: Launched, memory: DeviceMemory) -> None:
        if launched.name not in lost:
            KERNELS[launched.name](launched.values, memory)

    running = opened_session(driver := Library(execute, KINDS), BRANCHES)
    for name, is_soiled in (("add", True), ("first", True), ("first", False)):
        lost[:] = []
        np.testing.assert_array_equal(np.asarray(running.run([X])[0]), EXPECTED)
        lost[:] = [name]
        if is_soiled:
            running.soil()
        assert np.isnan(np.asarray(running.run([X])[0])).all() == is_soiled
    running.close()
    assert driver.leaks() == []


@pytest.mark.parametrize(
    "orders",
    [
        (Order(is_dependent=True), *ROW[1:]),
        (*BRANCHES[:2], Order(1, waits=(0,), is_dependent=True), BRANCHES[3]),
        (*BRANCHES[:2], Order(1, waits=(3,)), BRANCHES[3]),
        (*BRANCHES[:2], Order(1, waits=(2,)), BRANCHES[3]),
        (*BRANCHES[:2], Order(1, waits=(-1,)), BRANCHES[3]),
        (*BRANCHES[:3], Order(waits=(1,))),
        (*BRANCHES[:2], Order(4, waits=(0,)), BRANCHES[3]),
        (*BRANCHES[:2], Order(-1, waits=(0,)), BRANCHES[3]),
    ],
)
def test_an_impossible_order_is_refused(orders: tuple[Order, ...]) -> None:
    with pytest.raises(ProgramError, match="launch"):
        opened(diamond(orders))
