"""What lives from run to run in the host's memory: two buffers a state, one that a run reads and one that it writes."""

from __future__ import annotations

import ctypes

from jitdelegate.program.program import ZEROS
from jitdelegate.runtime.arena import ALIGNMENT, Memory, aligned

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jitdelegate.program.program import Program


class States:
    """The states of one session; a run that does not end leaves them as they were.

    Attributes:
        before: addresses of what the next run reads, by state.
        after: addresses of what it writes.

    Raises:
        DeviceError: the system gives too little memory.
    """

    __slots__ = ("_memory", "_program", "_stale", "after", "before")

    def __init__(self, program: Program) -> None:
        self._program = program
        # between buffers a line stays free: kernels may read some bytes beyond the end
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
        """Let the next run find the first values again; of resource variables too where `resources` says so."""
        states = enumerate(self._program.states)
        self._stale = [place for place, state in states if resources or not state.is_resource or place in self._stale]

    def prepare(self) -> None:
        """Fill in the first values where they are due; they stay due until a run has ended with them. The program's
        weights, which hold them, are verified."""
        for place in self._stale:
            state = self._program.states[place]
            if state.initial == ZEROS:
                ctypes.memset(self.before[place], 0, state.nbytes)
            else:
                first = bytes(self._program.weights[state.initial : state.initial + state.nbytes])
                ctypes.memmove(self.before[place], first, state.nbytes)

    def read(self, place: int) -> bytes:
        """What the next run finds, as row-major bytes; `prepare` comes before, unless a run has ended since."""
        return ctypes.string_at(self.before[place], self._program.states[place].nbytes)

    def write(self, place: int, content: bytes) -> None:
        """Let the next run find this."""
        self._stale = [each for each in self._stale if each != place]
        ctypes.memmove(self.before[place], content, self._program.states[place].nbytes)

    def advance(self) -> None:
        """What the run has written is what the next one reads."""
        self.before, self.after = self.after, self.before
        self._stale = []

    def so_far(self) -> list[bytes | None]:
        """What the next run finds in each state, None where that is its first value."""
        return [None if place in self._stale else self.read(place) for place in range(len(self.before))]

    def close(self) -> None:
        """Free the memory."""
        if self._memory:
            self._memory.close()
