"""Weights on a device, uploaded once for all sessions of the process that run on the same ones."""

from __future__ import annotations

import _thread
import os

from jitdelegate.program.read import verify_weights
from jitdelegate.runtime.buffers import Borrowed
from jitdelegate.runtime.cuda_driver import try_release
from jitdelegate.runtime.weights import shared_file, undisturbed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jitdelegate.program.program import Program
    from jitdelegate.runtime.cuda_device import Device
    from jitdelegate.runtime.cuda_driver import Driver

    Key = tuple[int, int, str, int]


class Weights:
    """Uploaded weights; `share_weights` makes them, and counts who uses them.

    Attributes:
        address: on the device, 0 for no bytes.
        users: sessions that compute on it.
    """

    __slots__ = ("_driver", "_key", "address", "users")

    def __init__(self, driver: Driver, key: Key, address: int) -> None:
        self._driver = driver
        self._key = key
        self.users = 0
        self.address = address

    def release(self) -> None:
        """One user less; without any, the memory is freed. The device's context must be current."""
        with _lock:
            self.users -= 1
            if self.users:
                return
            if _shared.get(self._key) is self:
                del _shared[self._key]
            if self.address:
                self._driver.free(self.address)


# Python may drop a session, which releases its weights, in the midst of any call: also in one that holds the lock.
_lock = _thread.RLock()
_shared: dict[Key, Weights] = {}


def share_weights(program: Program, device: Device, stream: int) -> Weights:
    """The program's weights on the device, hashed before anyone computes on them; to be given back by `release`.

    The device's context must be current.

    Raises:
        ProgramError: the weights are damaged.
        DeviceError: the device has too little memory, or the copy failed.
    """
    # the length too: whoever only claims the hash may not compute past the end of another's weights
    key = os.getpid(), device.ordinal, program.weights_hash, len(program.weights)
    with _lock:
        found = _shared.get(key)
        if found is None or not found.users:
            found = _shared[key] = Weights(device.driver, key, _upload(program, device.driver, stream))
        found.users += 1
        return found


def _upload(program: Program, driver: Driver, stream: int) -> int:
    """The address of a copy on the device, which is made while the host hashes the same bytes; begun anew if their file
    changes meanwhile."""
    nbytes = len(program.weights)
    if not nbytes:
        return 0
    address = driver.allocate(nbytes)
    source = Borrowed(program.weights)

    def upload() -> None:
        driver.upload(address, source.address, nbytes, stream)
        try:
            verify_weights(program)
        finally:
            driver.synchronize(stream)

    try:
        undisturbed(shared_file(program.weights), upload)
    except BaseException:
        try_release(driver.free, address)
        raise
    return address
