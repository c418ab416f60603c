"""Every deliberate error of jitdelegate derives from JitDelegateError and says what was found and what was expected."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

LONGEST_NAME = 60
"""Most characters of a tensor's name in a message: converters join the names of all layers that became one operator."""


def shortened(name: str) -> str:
    """A tensor's name for a message, with its middle left out if it is long; both ends tell tensors apart."""
    kept = LONGEST_NAME - 3
    return name if len(name) <= LONGEST_NAME else f"{name[: kept // 2]}...{name[-(kept - kept // 2) :]}"


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """` (did you mean precision?)`, with the one of the names that is most like a misspelt one; "" if none is."""
    from difflib import get_close_matches  # not before: it is as large as the load path

    near = get_close_matches(name, sorted(names), 1)
    return f" (did you mean {near[0]}?)" if near else ""


class JitDelegateError(Exception):
    """Root of the errors that jitdelegate raises on purpose."""


class ModelError(JitDelegateError, ValueError, RuntimeError):
    """The bytes are not a model that can be read; the message names the place and what is wrong there.

    LiteRT's Interpreter raises a ValueError there, its CompiledModel a RuntimeError.
    """


class CompileError(JitDelegateError):
    """A graph cannot be compiled: its code would be too long, an operator has no kernel, or the compiler failed. LiteRT
    runs its operators instead.

    Attributes:
        reasons: by position in the file, one sentence about each operator that is to blame; empty where it is the graph
            as a whole.
    """

    def __init__(self, message: str, reasons: Mapping[int, str] | None = None) -> None:
        super().__init__(message)
        self.reasons = dict(reasons or {})


class TooLongError(CompileError):
    """Code for the graph as a whole would be too long to compile in reasonable time, whichever operator is the last."""


class OptionError(JitDelegateError, ValueError):
    """An option is unknown, or its value is not one of those it takes."""


class LibraryError(OptionError, OSError):
    """A library of a delegate cannot be loaded, or makes no delegate."""


class ProgramError(JitDelegateError):
    """Program bytes failed a check (magic, version, length, hash or bounds) and must not be used."""


class IncompleteError(ProgramError):
    """A program's file is good, but another file, which has a part of its weights, is missing or bad."""


class CacheError(JitDelegateError):
    """A cache place or entry cannot be used; the cache turns it into a counted miss, never into a failed model.

    Attributes:
        remedy: an instruction that helps, other than to take another directory; "" for none.
    """

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.remedy = remedy


class DeviceError(JitDelegateError, RuntimeError):
    """The machine cannot run the model as requested: no such device, missing CPU features, out of memory."""


class ShapesError(DeviceError):
    """The model cannot run with inputs of these shapes, on LiteRT neither."""


class GpuError(DeviceError):
    """A GPU or its driver failed, or is out of memory. With the target "auto", the CPU takes over."""


class RefusedValueError(DeviceError):
    """A run found an index outside the data, or another value at which LiteRT's kernels stop; has LiteRT's words.

    Its outputs are undefined, and so are variables that it updates. The next run is not affected.
    """


class ClosedError(DeviceError, AttributeError):
    """A CompiledModel was used after `close`; LiteRT raises an AttributeError there."""


class CompilerFailedError(DeviceError):
    """The compiler as a whole is missing, too old, broken or out of memory; with target "auto" the model runs on LiteRT
    instead. A failure that only concerns some operators is no error: LiteRT runs them.

    Attributes:
        may_pass: whether the next start may succeed, so that the failure is not remembered.
    """

    def __init__(self, message: str, *, may_pass: bool = False) -> None:
        super().__init__(message)
        self.may_pass = may_pass


class DelegationError(DeviceError):
    """Full delegation was required, and some operators cannot be delegated; the message has each reason."""


class TensorError(JitDelegateError, ValueError):
    """A tensor that was passed in or requested has the wrong name, index, type, shape or length."""


class CompiledModelError(TensorError, RuntimeError):
    """A CompiledModel was given a wrong signature, name, index, shape or buffer."""


class TensorBufferError(TensorError, RuntimeError):
    """A TensorBuffer was destroyed, or is smaller than what is read from it or written to it."""


class EventTimeoutError(JitDelegateError, TimeoutError):
    """An event has not happened within the time that was allowed for it; it can be waited for again."""


class DelegateWarning(UserWarning):
    """Operators of a model run on LiteRT, the delegate stays out of an interpreter, or a GPU has failed; says which and
    why."""


class CacheWarning(UserWarning):
    """Compiled programs cannot be kept; says where, why, and what helps. Models are compiled again at every start."""
