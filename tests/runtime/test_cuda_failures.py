"""A GPU that fails for good at any call: an error that names the call, then ones that explain, and a quiet end."""

from __future__ import annotations

import gc
import os
import sys
from typing import Any

import numpy as np
import pytest

from jitdelegate.errors import DeviceError
from jitdelegate.runtime.cuda import context
from jitdelegate.runtime.cuda.device import Device
from jitdelegate.runtime.cuda.driver import STICKY, Driver
from jitdelegate.runtime.cuda.memory import GpuMemory
from jitdelegate.runtime.cuda.weights import Weights
from tests.child import in_child
from tests.gpu.stub.library import ILLEGAL_ADDRESS, INVALID_VALUE, WITHOUT_INITIALISATION, CudaError, GlBuffer, Library
from tests.gpu.stub.programs import KERNELS, KINDS, X
from tests.runtime.gate import place
from tests.runtime.test_cuda_session import session

ALL = 1 << 20
RELEASES = {"cuMemFree_v2", "cuMemFreeHost", "cuEventDestroy_v2", "cuGraphDestroy", "cuGraphExecDestroy"}
"""Their failures are told by the next call, if there is one."""


class Failing(Library):
    """A driver of whose calls one fails; after a sticky error all others too, but questions about devices.

    Attributes:
        left: calls that work before.
        refused: the functions that were called since.
    """

    _is_ending = staticmethod(sys.is_finalizing)

    def __init__(self, left: int, code: int = ILLEGAL_ADDRESS) -> None:
        super().__init__(lambda launched, memory: KERNELS[launched.name](launched.values, memory), KINDS)
        self.gl_buffers = {name: GlBuffer(bytes(24)) for name in (7, 8)}
        self.left, self.code, self.is_sticky = left, code, code in STICKY
        self.refused: list[str] = []

    def enter(self, name: str) -> None:
        if self._is_ending():
            os.write(2, f"{name} is called while Python ends".encode())
        is_question = name in WITHOUT_INITIALISATION or name.startswith("cuDevice")
        if not name.startswith("cuGetError") and not (self.is_sticky and is_question):
            if not self.left:
                self.refused.append(name)
                self.left -= not self.is_sticky
                raise CudaError(self.code)
            self.left -= 1
        super().enter(name)


def live(driver: Failing, kept: list[Any]) -> None:
    """Opens a session and runs it on memory of every kind; all that is made is `kept`."""
    kept.append(running := session(driver))
    running.run([X])
    memory = GpuMemory(Device(Driver(driver), 0))
    for make in (
        lambda: (place(X.copy()), place(np.zeros(6, np.float32))),
        lambda: (running.make_place(0), running.make_place(1, on_device=True)),
        lambda: (memory.gl_place(7, 0, 24), memory.gl_place(8, 0, 24)),
    ):
        kept.append(binding := running.bind(make()))
        running.run_bound(binding)
        kept.append(running.run_async(binding))
        kept[-1].wait()
    running.soil()


def failed(driver: Failing) -> str:
    """Lets a session live and closes it; the error that there was, "" for none."""
    kept: list[Any] = []
    try:
        live(driver, kept)
    except DeviceError as error:
        return str(error)
    finally:
        for running in kept[:1]:
            running.close()
    return ""


def test_a_failure_at_any_call_is_told_and_explained_and_all_is_freed_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    complaints: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", complaints.append)
    driver = Failing(ALL)
    assert failed(driver) == ""
    gc.collect()
    assert driver.leaks() == []
    gc.freeze()  # looks at what is made from here on only
    for left in range(ALL - driver.left):
        context._held.clear()
        driver = Failing(left)
        said = failed(driver)
        gc.collect()
        told = [name for name in driver.refused if name not in RELEASES]
        assert not said or said.startswith(f"{told[0]} failed with CUDA_ERROR_ILLEGAL_ADDRESS"), (left, said)
        if said:
            with pytest.raises(DeviceError, match=r"^the GPU has failed in this process"):
                session(driver)
    gc.unfreeze()
    assert not complaints


alive: list[Any] = []
"""What lives until the process ends."""


def live_until_the_end(left: str) -> None:
    context._held.clear()  # imported tests have opened sessions
    alive.append(driver := Failing(int(left)))
    try:
        live(driver, alive)
    except DeviceError as error:
        alive.append(error)
    assert bool(driver.refused) == (int(left) < ALL) and len(alive) > 2


@pytest.mark.parametrize("left", [60, 180, ALL])
def test_python_ends_quietly_while_all_is_alive(left: int) -> None:
    ended = in_child(live_until_the_end, left)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_an_opengl_buffer_whose_address_is_refused_is_given_back() -> None:
    driver = Failing(ALL)
    running, memory = session(driver), GpuMemory(Device(Driver(driver), 0))
    binding = running.bind((memory.gl_place(7, 0, 24), memory.gl_place(8, 0, 24)))
    driver.fail("cuGraphicsResourceGetMappedPointer_v2", INVALID_VALUE)
    with pytest.raises(DeviceError, match=r"^cuGraphicsResourceGetMappedPointer_v2 failed with CUDA_ERROR_INVALID"):
        running.run_bound(binding)
    running.run_bound(binding)
    assert np.frombuffer(driver.gl_buffers[8].content, np.float32).all()


def test_weights_that_are_freed_in_vain_give_back_those_that_they_share() -> None:
    driver = Failing(ALL)
    held = context.hold_context(Device(Driver(driver), 0))
    with held.current():
        rooms = [held.driver.allocate(8) for _ in range(2)]
        main = Weights(held, ("main", 8, ""), rooms[0], [(0, 8)], (), None)
        further = Weights(held, ("further", 8, "main"), rooms[1], [(0, 8)], (), main)
        further.users += 1
        driver.fail("cuMemFree_v2", INVALID_VALUE)
        further.release()
    assert (main.users, driver.leaks()) == (0, ["DeviceRange"])
