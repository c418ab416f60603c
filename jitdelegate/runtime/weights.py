"""Weights: a program's constants in memory, with a check that they are intact."""

from __future__ import annotations

from jitdelegate.program.layout import ALIGNMENT as PAGE
from jitdelegate.program.read import verify_weights
from jitdelegate.runtime.buffers import Borrowed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from jitdelegate.program.program import Bytes, Program
    from jitdelegate.runtime.shared_file import SharedFile

TRIES = 2
"""Most disturbed runs before the weights become private."""
_NEVER = -1


class Weights:
    """The weights of one program, held in place until `release`.

    Attributes:
        address: of the first byte, page-aligned.
        file: the file that they are shared with; None if they are private from the start.
    """

    __slots__ = ("_held", "_program", "_verified", "address", "file")

    def __init__(self, program: Program) -> None:
        """Use the program's weights in place if they are page-aligned; else give the program an aligned copy."""
        self._held = Borrowed(program.weights)
        if self._held.address % PAGE:
            self._held.release()
            program.weights = _copy_at_page(program.weights)
            self._held = Borrowed(program.weights)
        self.address = self._held.address
        self.file = shared_file(program.weights)
        self._program = program
        self._verified = _NEVER

    def verify(self) -> None:
        """Hash the weights, unless that was done since the file last changed.

        Raises:
            ProgramError: they are damaged.
        """
        changes = self.file.changes if self.file else 0
        if self._verified != changes:
            verify_weights(self._program)
            self._verified = changes

    def release(self) -> None:
        """Release the memory; harmless a second time."""
        self._held.release()


def _copy_at_page(weights: Bytes) -> memoryview:
    room = bytearray(len(weights) + PAGE)
    start = -Borrowed(room).address % PAGE
    copy = memoryview(room)[start : start + len(weights)]
    copy[:] = weights
    return copy.toreadonly()


def shared_file(weights: Bytes) -> SharedFile | None:
    """The file that these bytes are shared with; None for private ones."""
    owner: SharedFile | None = getattr(weights, "obj", None)
    return owner if getattr(owner, "shared", False) else None  # without importing SharedFile, which is rarely needed


def undisturbed(file: SharedFile | None, run: Callable[[], None]) -> None:
    """Call `run`, which reads the file's bytes, until a call ends without a change of the file.

    Args:
        file: None if the bytes are private.
        run: verifies what it reads if `changes` differs from the last call. It may be called several times; only the
            last call counts.
    Raises:
        DeviceError: the file keeps changing, and there is no memory for a copy.
    """
    if file is None:
        run()
        return
    for _ in range(TRIES):
        file.look()
        before = file.changes
        run()
        file.look()
        if file.changes == before:
            return
    file.own()
    run()
