"""Weights on a device, uploaded once and shared by the sessions of the process.

Constants that a program shares with its model's main program are used where they are on the device, too.
"""

from __future__ import annotations

from jitdelegate.program.program import ALIGNMENT as PAGE
from jitdelegate.program.read import verify_weights
from jitdelegate.program.shared_pages import stored_ranges
from jitdelegate.runtime.buffers import Borrowed
from jitdelegate.runtime.cuda.context import lock
from jitdelegate.runtime.cuda.driver import try_release
from jitdelegate.runtime.memory import shared_file, undisturbed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jitdelegate.program.program import Program, SharedPages
    from jitdelegate.runtime.cuda.context import Context
    from jitdelegate.runtime.cuda.driver import Driver

    Key = tuple[str, int, str]
    Range = tuple[int, int]

MAIN = 0
"""The main program's number among the sources of weights."""


class Weights:
    """Uploaded weights; `share_weights` makes them, and counts their users.

    Attributes:
        users: number of sessions, and of further weights that lie partly in these.
    """

    __slots__ = ("_address", "_addresses", "_context", "_key", "_main", "users")

    def __init__(
        self, context: Context, key: Key, address: int, ranges: list[Range], shared: SharedPages, main: Weights | None
    ) -> None:
        """
        Args:
            address: of the uploaded bytes, which are the `ranges`; 0 for no bytes.
            shared: runs of pages as `Program.shared` has them, all from `main`, which is None without any.
        """
        self._context = context
        self._key = key
        self._address = address
        self._main, self.users = main, 0
        self._addresses: list[Range] = []
        for start, end in ranges:
            self._addresses.append((start, address))
            address += end - start
        if main is not None:
            main.users += 1
            self._addresses += [(first * PAGE, main.address_of(there * PAGE)) for first, _, there, _ in shared]
        self._addresses.sort(reverse=True)

    def address_of(self, offset: int) -> int:
        """The address on the device of what lies at `offset` in the program's weights."""
        for start, address in self._addresses:
            if start <= offset:
                return address + offset - start
        return 0

    def release(self) -> None:
        """Remove one user; the memory is freed after the last one. The context must be current."""
        with lock:
            self.users -= 1
            if self.users:
                return
            if self._context.weights.get(self._key) is self:
                del self._context.weights[self._key]
            if self._address:
                try_release(self._context.driver.free, self._address)
            if self._main is not None:
                self._main.release()


def share_weights(program: Program, context: Context, stream: int) -> Weights:
    """The program's weights in a context, verified; for `release`.

    The context must be current.

    Raises:
        ProgramError: the weights are damaged.
        DeviceError: the device has too little memory, or the copy failed.
    """
    # the length too: a forged hash must not lead to reads past the end of other weights
    nbytes = len(program.weights)
    with lock:
        weights = _in_use(context, (program.weights_hash, nbytes, ""))
        shared = _shared(program) if program.main_hash and weights is None else ()
        main = _main(program, context, shared) if shared else None
        key = program.weights_hash, nbytes, program.main_hash if main else ""
        weights = weights or _in_use(context, key)
        if weights is None:
            shared = shared if main else ()
            ranges = stored_ranges(shared, nbytes)
            address = _upload(program, context.driver, stream, ranges)
            weights = context.weights[key] = Weights(context, key, address, ranges, shared, main)
        weights.users += 1
        return weights


def _in_use(context: Context, key: Key) -> Weights | None:
    uploaded: dict[Key, Weights] = context.weights
    weights = uploaded.get(key)
    return weights if weights is not None and weights.users else None


def _main(program: Program, context: Context, shared: SharedPages) -> Weights | None:
    """The weights of the model's main program with all these pages, where they are on the device."""
    uploaded: dict[Key, Weights] = context.weights
    end = PAGE * max(there + pages for _, _, there, pages in shared)
    for (weights_hash, nbytes, main_hash), weights in uploaded.items():
        if weights_hash == program.main_hash and nbytes >= end and not main_hash and weights.users:
            return weights
    return None


def _shared(program: Program) -> SharedPages:
    """The constants that are shared with the main program; no constant is shared in part."""
    constants = list[tuple[int, int, int, int]]()
    numbers = program.large_constants
    for first, pages in zip(numbers[::2], numbers[1::2], strict=False):
        for start, number, there, length in program.shared:
            if number == MAIN and start <= first and first + pages <= start + length:
                constants.append((first, MAIN, there + first - start, pages))
    return tuple(constants)


def _upload(program: Program, driver: Driver, stream: int, ranges: list[Range]) -> int:
    """The address of a copy of parts of the weights on the device. The copy is made while the host hashes the same
    bytes, and repeated if their files change meanwhile."""
    nbytes = sum(end - start for start, end in ranges)
    if not nbytes:
        verify_weights(program)
        return 0
    address = driver.allocate(nbytes)
    source = Borrowed(program.weights)

    def upload() -> None:
        at = address
        for start, end in ranges:
            driver.upload(at, source.address + start, end - start, stream)
            at += end - start
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
