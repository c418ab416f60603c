"""States in host memory: two buffers per state, one that a run reads and one that it writes."""

from __future__ import annotations

import ctypes

from jitdelegate.program.program import ZEROS
from jitdelegate.runtime.arena import ALIGNMENT, Memory, aligned

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jitdelegate.program.program import Program


class States:
    """The states of one session; an unfinished run leaves them unchanged.

    Attributes:
        before: per state, the address that the next run reads.
        after: per state, the address that the next run writes.

    Raises:
        DeviceError: out of memory.
    """

    __slots__ = ("_memory", "_program", "_stale", "after", "before")

    def __init__(self, program: Program) -> None:
        self._program = program
        # a cache line between buffers stays unused: kernels may read some bytes beyond the end
        rooms = [aligned(state.nbytes) + ALIGNMENT for state in program.states]
        self._memory = Memory(2 * sum(rooms)) if rooms else None
        start = self._memory.address if self._memory else 0
        self.before: list[int] = []
        self.after: list[int] = []
        for room in rooms:
            self.before.append(start)
            self.after.append(start + room)
            start += 2 * room
        self._stale = list(range(len(rooms)))

    def reset(self, *, resources: bool) -> None:
        """Reset to the first values, those of resource variables if `resources`."""
        states = enumerate(self._program.states)
        self._stale = [place for place, state in states if resources or not state.is_resource or place in self._stale]

    def prepare(self) -> None:
        """Write the first values of reset states; they stay reset until a run has ended. The program's weights, which
        hold the values, have been verified."""
        for place in self._stale:
            state = self._program.states[place]
            if state.initial == ZEROS:
                ctypes.memset(self.before[place], 0, state.nbytes)
            else:
                first = bytes(self._program.weights[state.initial : state.initial + state.nbytes])
                ctypes.memmove(self.before[place], first, state.nbytes)

    def read(self, place: int) -> bytes:
        """Current value of a state, as row-major bytes; call `prepare` first, unless a run has ended since."""
        return ctypes.string_at(self.before[place], self._program.states[place].nbytes)

    def write(self, place: int, content: bytes) -> None:
        """Set the current value of a state."""
        self._stale = [each for each in self._stale if each != place]
        ctypes.memmove(self.before[place], content, self._program.states[place].nbytes)

    def advance(self) -> None:
        """Make the values that the run has written the current ones."""
        self.before, self.after = self.after, self.before
        self._stale = []

    def so_far(self) -> list[bytes | None]:
        """Current value of each state; None for its first value."""
        return [None if place in self._stale else self.read(place) for place in range(len(self.before))]

    def close(self) -> None:
        """Free the memory."""
        if self._memory:
            self._memory.close()
