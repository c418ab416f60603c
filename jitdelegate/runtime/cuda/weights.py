"""Weights on a device, uploaded once and shared by the sessions of the process."""

from __future__ import annotations

from jitdelegate.program.read import verify_weights
from jitdelegate.runtime.buffers import Borrowed
from jitdelegate.runtime.cuda.context import lock
from jitdelegate.runtime.cuda.driver import try_release
from jitdelegate.runtime.weights import shared_file, undisturbed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jitdelegate.program.program import Program
    from jitdelegate.runtime.cuda.context import Context
    from jitdelegate.runtime.cuda.driver import Driver

    Key = tuple[str, int]


class Weights:
    """Uploaded weights; `share_weights` makes them, and counts their users.

    Attributes:
        address: on the device; 0 for no bytes.
        users: number of sessions that use them.
    """

    __slots__ = ("_context", "_key", "address", "users")

    def __init__(self, context: Context, key: Key, address: int) -> None:
        self._context = context
        self._key = key
        self.users = 0
        self.address = address

    def release(self) -> None:
        """Remove one user; the memory is freed after the last one. The context must be current."""
        with lock:
            self.users -= 1
            if self.users:
                return
            if self._context.weights.get(self._key) is self:
                del self._context.weights[self._key]
            if self.address:
                self._context.driver.free(self.address)


def share_weights(program: Program, context: Context, stream: int) -> Weights:
    """The program's weights in a context, verified; for `release`.

    The context must be current.

    Raises:
        ProgramError: the weights are damaged.
        DeviceError: the device has too little memory, or the copy failed.
    """
    # the length too: a forged hash must not lead to reads past the end of other weights
    key = program.weights_hash, len(program.weights)
    with lock:
        found = context.weights.get(key)
        if found is None or not found.users:
            found = context.weights[key] = Weights(context, key, _upload(program, context.driver, stream))
        found.users += 1
        return found


def _upload(program: Program, driver: Driver, stream: int) -> int:
    """The address of a copy on the device. The copy is made while the host hashes the same bytes, and repeated if their
    file changes meanwhile."""
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
