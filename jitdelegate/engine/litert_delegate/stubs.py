"""Machine code of the delegate itself, in the words of this machine: `stubs_*.py`, a file for each processor."""

from __future__ import annotations

from jitdelegate.errors import OptionError
from jitdelegate.runtime.memory import Memory, machine

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from jitdelegate.runtime.litert_layout import Layout

_CAPACITY = 4096


def jump_to_slot(layout: Layout) -> bytes:
    """int invoke(context, node): jump to the first word of the slot that node->user_data points at."""
    offset, own = layout.node["user_data"], _own()
    if offset > own.LARGEST_OFFSET:
        raise OptionError(f"user_data at byte {offset}, expected at most {own.LARGEST_OFFSET}")
    return bytes(own.jump_to_slot(offset))


def answering(function: int, default: int) -> bytes:
    """word f(a, b, c): call `function(a, b, c, &word)`, and return the word, which is `default` before.

    A Python callback that ends in an exception returns whatever ctypes finds on the stack. Its own `try` does not help:
    an interrupt that arrives while LiteRT computes is raised before the callback's first line.
    """
    return bytes(_own().answering(function, default))


def doubling(layout: Layout) -> bytes:
    """int f(context, node): y[i] = x[i] + x[i]; arguments are the count, and where x and y lie in the tensors."""
    return bytes(_own().doubling(layout.node["user_data"], layout.context["tensors"]))


def _own() -> Any:
    return __import__(f"{__name__}_{machine()}", fromlist=["answering"])


def load(*routines: bytes) -> tuple[int, ...]:
    """Copy routines to executable memory that is never freed; their addresses.

    Raises:
        DeviceError: executable memory is not available.
    """
    content, starts, padding = bytearray(), [], _own().PADDING
    for routine in routines:
        starts.append(len(content))
        content += routine.ljust(-(-len(routine) // 16) * 16, padding)
    memory = Memory(max(len(content), _CAPACITY))
    memory.write(bytes(content))
    memory.make_executable()
    return tuple(memory.address + start for start in starts)
