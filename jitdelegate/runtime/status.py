"""The status word of a run: 0, or the number of a refusal with the value that was found; NOT_RUN where nothing ran."""

from __future__ import annotations

from jitdelegate.errors import RefusedValueError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from jitdelegate.program.program import Program

FOUND_BITS = 48
"""Bits of the value found, which are the lower ones; a value that needs more is replaced by the nearest one."""
NOT_RUN = -1
"""Status word where nothing has run, because the session was just closed or paused: no program has as many refusals."""
LARGEST_FOUND = (1 << (FOUND_BITS - 1)) - 1
_PLACEHOLDER = "{}"


def refusal(program: Program, word: int) -> RefusedValueError:
    """The error of a run that has left this status word, which is not 0."""
    number = (word >> FOUND_BITS) & ((1 << (64 - FOUND_BITS)) - 1)
    found = word & ((1 << FOUND_BITS) - 1)
    found -= (found > LARGEST_FOUND) << FOUND_BITS
    known = 0 < number <= len(program.refusals)
    text = program.refusals[number - 1] if known else f"the run was refused for reason {number}: {_PLACEHOLDER}"
    return RefusedValueError(text.replace(_PLACEHOLDER, str(found)))


def formats(refusals: Sequence[str]) -> list[bytes]:
    """What LiteRT is told, as printf takes it, with a `long long`, the value found."""
    texts = (text.replace("%", "%%").replace(_PLACEHOLDER, "%lld", 1) for text in refusals)
    return [f"jitdelegate: {text}. \0".encode() for text in texts]
