"""States on a CUDA device: memory of their own, copied to where launches read them, and back after the launches.

A state that a run updates in place lies in the arena itself, in a region of its own.
"""

from __future__ import annotations

import ctypes

from jitdelegate.program.program import ZEROS
from jitdelegate.runtime.buffers import Borrowed
from jitdelegate.runtime.memory import states_in_place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from jitdelegate.program.program import Program
    from jitdelegate.runtime.cuda.driver import Driver
    from jitdelegate.runtime.cuda.route import Copy

ALIGNMENT = 256


class CudaStates:
    """The states of one session. A failed run leaves them unchanged, except for those that it updates in place."""

    __slots__ = ("_addresses", "_after", "_before", "_driver", "_stale", "_states", "_weights")

    def __init__(self, program: Program, driver: Driver, room: int, arena: int, weights: Callable[[int], int]) -> None:
        """
        Args:
            room: the address of `nbytes(program)` bytes of device memory.
            arena: the address of the program's arena on the device.
            weights: the address of what lies at an offset in its weights.
        """
        self._driver = driver
        self._states = program.states
        self._weights = weights
        self._before = program.input_offsets[len(program.inputs) :]
        self._after = program.output_offsets[len(program.outputs) :]
        self._addresses: list[int] = []
        for state, address in zip(program.states, _in_arena(program), strict=True):
            if address is not None:
                self._addresses.append(arena + address)
                continue
            self._addresses.append(room)
            room += _aligned(state.nbytes)
        self._stale = list(range(len(program.states)))

    @staticmethod
    def nbytes(program: Program) -> int:
        """Bytes of device memory for the states of a program."""
        pairs = zip(program.states, _in_arena(program), strict=True)
        return sum(_aligned(state.nbytes) for state, offset in pairs if offset is None)

    def reset(self, *, resources: bool) -> None:
        """Let the next run start with the first values again, also of resource variables if `resources` is true."""
        states = enumerate(self._states)
        self._stale = [number for number, one in states if resources or not one.is_resource or number in self._stale]

    def prepare(self, stream: int) -> None:
        """Enqueue copies of the first values of reset states."""
        for number in self._stale:
            state, own = self._states[number], self._addresses[number]
            if state.nbytes and state.initial == ZEROS:
                self._driver.clear(own, state.nbytes, stream)
            elif state.nbytes:
                self._driver.copy(own, self._weights(state.initial), state.nbytes, stream)
        self._stale = []

    def read(self, number: int, stream: int) -> bytes:
        """Current value of a state, as row-major bytes, after all work in the stream."""
        self.prepare(stream)
        content = ctypes.create_string_buffer(self._states[number].nbytes)
        if len(content):
            self._driver.download(ctypes.addressof(content), self._addresses[number], len(content), stream)
        self._driver.synchronize(stream)
        return content.raw

    def so_far(self, stream: int) -> list[bytes | None]:
        """Current value of each state; None for its first value."""
        stale = set(self._stale)
        return [None if number in stale else self.read(number, stream) for number in range(len(self._states))]

    def write(self, number: int, content: bytes, stream: int) -> None:
        """Set the current value of a state, and wait for the copy."""
        self.prepare(stream)
        held = Borrowed(content)
        if held.nbytes:
            self._driver.upload(self._addresses[number], held.address, held.nbytes, stream)
        self._driver.synchronize(stream)

    def copies(self, address: Callable[[int], int]) -> tuple[list[Copy], list[Copy]]:
        """(the copies to where launches read the states, the copies from where they write them).

        Args:
            address: offset of a state to its address.
        """
        before: list[Copy] = []
        after: list[Copy] = []
        for state, own, read, written in zip(self._states, self._addresses, self._before, self._after, strict=True):
            if state.nbytes and address(read) != own:
                before.append((address(read), own, state.nbytes))
            if state.nbytes and address(written) != own:
                after.append((own, address(written), state.nbytes))
        return before, after


def _in_arena(program: Program) -> list[int | None]:
    """For each state its offset in the arena, if it is updated in place and starts and ends there; else None."""
    shared = states_in_place(program)
    pairs = zip(
        program.input_offsets[len(program.inputs) :], program.output_offsets[len(program.outputs) :], strict=True
    )
    return [
        before if number in shared and before == after < program.arena_bytes else None
        for number, (before, after) in enumerate(pairs)
    ]


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
