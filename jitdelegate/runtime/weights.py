"""Weights: a program's constants in memory, with a check that they are intact."""

from __future__ import annotations

from jitdelegate.program.layout import ALIGNMENT as PAGE
from jitdelegate.program.layout import check_range
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
        constants: per large constant, its address, which may be in memory of another program that has it too.
        file: the file that they are shared with; None if they are private from the start.

    Raises:
        ProgramError: a large constant is out of bounds.
    """

    __slots__ = ("_held", "_mapped", "_program", "_verified", "address", "constants", "file")

    def __init__(self, program: Program) -> None:
        """Use the program's weights in place if they are page-aligned; else give the program an aligned copy."""
        self._held = Borrowed(program.weights)
        if self._held.address % PAGE:
            self._held.release()
            program.weights = _copy_at_page(program.weights)
            self._held = Borrowed(program.weights)
        self.address = self._held.address
        self._mapped = _mapping(program.weights)
        self._program = program
        self._verified = _NEVER
        self.constants = [self._place(first * PAGE, pages * PAGE) for first, pages in _large_constants(program)]
        self.file = shared_file(program.weights)

    def _place(self, start: int, nbytes: int) -> int:
        """The address of these bytes."""
        at = self.address + start
        return self._mapped.elsewhere(at, nbytes) if self._mapped else at

    def verify(self) -> None:
        """Hash the weights, unless that was done since the file last changed.

        Raises:
            ProgramError: they are damaged.
        """
        changes = self.file.changes if self.file else 0
        if self._verified != changes:
            parts = self._mapped.parts(self.address, len(self._program.weights)) if self._mapped else ()
            verify_weights(self._program, parts)
            self._verified = changes

    def release(self) -> None:
        """Release the memory; harmless a second time."""
        self._held.release()


def _large_constants(program: Program) -> list[tuple[int, int]]:
    """(first page, pages) of each large constant, checked."""
    numbers, whole = program.large_constants, len(program.weights) // PAGE
    found = list(zip(numbers[::2], numbers[1::2], strict=False))
    for first, pages in found:
        check_range("first page of a large constant", first, whole)
        check_range("pages of a large constant", pages, whole - first, 1)
    return found


def _copy_at_page(weights: Bytes) -> memoryview:
    room = bytearray(len(weights) + PAGE)
    start = -Borrowed(room).address % PAGE
    copy = memoryview(room)[start : start + len(weights)]
    copy[:] = weights
    return copy.toreadonly()


def _mapping(weights: Bytes) -> SharedFile | None:
    """The object that has mapped these bytes, shared or private by now; None for bytes of another kind."""
    owner: SharedFile | None = getattr(weights, "obj", None)
    return owner if hasattr(owner, "elsewhere") else None  # without importing SharedFile, which is rarely needed


def shared_file(weights: Bytes) -> SharedFile | None:
    """The file that these bytes are shared with; None for private ones."""
    owner = _mapping(weights)
    return owner if owner is not None and owner.shared else None


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
