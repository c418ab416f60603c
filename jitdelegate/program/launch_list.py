"""A program's launches as one list of integers, because sixty tables with vectors would take long to read.

Per launch: kernel, grid x, y, z, block x, y, z, shared bytes, stream, whether it is dependent, number of launches that
it waits for, number of arguments; these launches; one character code per argument; one value per argument.
"""

from __future__ import annotations

from jitdelegate.errors import ProgramError
from jitdelegate.program.program import Launch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_HEAD = 12


def pack(launches: Iterable[Launch]) -> list[int]:
    """The integers of `launches`."""
    numbers: list[int] = []
    for launch in launches:
        numbers += (launch.kernel, *launch.grid, *launch.block, launch.shared_bytes)
        numbers += (launch.stream, int(launch.is_dependent), len(launch.waits), len(launch.kinds))
        numbers += launch.waits
        numbers += map(ord, launch.kinds)
        numbers += launch.values
    return numbers


def unpack(numbers: Sequence[int]) -> tuple[Launch, ...]:
    """The launches of a list made by `pack`.

    Raises:
        ProgramError: the list ends within a launch, or a character code is invalid.
    """
    launches: list[Launch] = []
    start = 0
    while start < len(numbers):
        waits = start + _HEAD
        awaited, count = numbers[waits - 2 : waits] if waits <= len(numbers) else (0, 0)
        kinds = waits + awaited
        end = kinds + 2 * count
        if not waits <= kinds <= end <= len(numbers):
            raise ProgramError(f"launch {len(launches)}: {count} arguments do not fit in {len(numbers)} integers")
        head, values = numbers[start:kinds], numbers[kinds + count : end]
        launches.append(_launch(head, numbers[kinds : kinds + count], values))
        start = end
    return tuple(launches)


def _launch(head: Sequence[int], letters: Sequence[int], values: Sequence[int]) -> Launch:
    try:
        kinds = bytes(letters).decode("ascii")
    except ValueError as error:
        raise ProgramError(f"a launch's arguments have the kinds {tuple(letters)}, expected letters") from error
    kernel, x, y, z, width, height, depth, shared_bytes, stream, is_dependent, *_ = head
    return Launch(
        kernel=kernel,
        grid=(x, y, z),
        block=(width, height, depth),
        shared_bytes=shared_bytes,
        kinds=kinds,
        values=tuple(values),
        stream=stream,
        waits=tuple(head[_HEAD:]),
        is_dependent=bool(is_dependent),
    )
