"""Faults: the compiler's own failures, and the operators that they concern, which LiteRT then runs.

An unexpected error of a pass, a lowering or a kernel's writer never fails a model. Stages that know the operators at
work catch it by `Faults.of`, and go on to find further ones; `settle` raises all as one CompileError. For an error that
escapes these, `compiler.partitioned` tries halves of the graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from traceback import format_exception

from jitdelegate.base.debug import log
from jitdelegate.base.options import DEBUG_LEVEL
from jitdelegate.errors import CompileError, JitDelegateError, TooLongError

FAILED = "the compiler failed with"
"""How the reasons of such failures begin."""
LONGEST = 300
"""Most characters of an error's text in a sentence."""
PASSING = (MemoryError, OSError, SyntaxError, SystemError)
"""Errors of a machine that lacks memory or files for now. Python that lacks memory raises a SyntaxError for a good
module as well, or a SystemError."""
NO_THREAD = "can't start new thread"
"""The RuntimeError of a process that may not have more threads."""


class Faults:
    """What failed in one compilation, or in one of its stages.

    Attributes:
        reasons: by position in the file, why an operator is not compiled.
        notes: sentences about what was left out, for the report.
    """

    def __init__(self) -> None:
        self.reasons: dict[int, str] = {}
        self.notes: list[str] = []

    @contextmanager
    def of(self, origin: Sequence[int]) -> Iterator[None]:
        """Work on the operators at these positions in the file. An error is theirs, and the caller goes on; without
        positions it is the caller's."""
        try:
            yield
        except Exception as error:
            if not origin or isinstance(error, TooLongError):
                raise
            known = error.reasons if isinstance(error, CompileError) else {}
            self.reasons |= known or dict.fromkeys(origin, reason_of(error))

    def settle(self) -> None:
        """
        Raises:
            CompileError: there were errors; it has the reasons of all.
        """
        if self.reasons:
            raise CompileError(next(iter(self.reasons.values())), self.reasons)

    def skip(self, name: str, error: Exception) -> None:
        """Note that the compiler went on without an optional stage, which raised the error."""
        note = f"compiled without {name}: {reason_of(error)}"
        if note not in self.notes:
            self.notes.append(note)


def reason_of(error: Exception) -> str:
    """Why an operator that raised the error is not compiled, as one sentence. An error that is deliberate, may pass, or
    says that a part of the compiler is missing is no fault of the compiler, and raised again."""
    if isinstance(error, CompileError):
        return _line(error)
    if isinstance(error, JitDelegateError | ImportError) or may_pass(error):
        raise error
    if DEBUG_LEVEL:
        log(f"{told(error)}\n{''.join(format_exception(error))}")
    return f"{told(error)}."


def told(error: BaseException) -> str:
    """`the compiler failed with KeyError: 3`, in one line; compilers' errors may have pages."""
    return f"{FAILED} {type(error).__name__}: {_line(error)}".rstrip(": .")


def _line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:LONGEST] if lines else ""


def may_pass(error: BaseException | None) -> bool:
    """Whether the process or the machine is to blame, or was while the error arose: another start may succeed."""
    while error is not None:
        if isinstance(error, PASSING) or str(error) == NO_THREAD:
            return True
        error = error.__cause__ or error.__context__
    return False
