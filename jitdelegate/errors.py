"""Every deliberate error of jitdelegate derives from JitDelegateError and says what was found and what was expected."""


class JitDelegateError(Exception):
    """Root of the errors that jitdelegate raises on purpose."""


class ModelError(JitDelegateError, ValueError, RuntimeError):
    """The bytes are not a model that can be read; the message names the place and what is wrong there.

    LiteRT's Interpreter raises a ValueError there, its CompiledModel a RuntimeError.
    """


class CompileError(JitDelegateError):
    """Code for the graph would be too long to compile in reasonable time; the model runs on LiteRT instead."""


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


class RefusedValueError(DeviceError):
    """A run found an index outside the data, or another value at which LiteRT's kernels stop; has LiteRT's words.

    Its outputs are undefined, and so are variables that it updates. The next run is not affected.
    """


class ClosedError(DeviceError, AttributeError):
    """A CompiledModel was used after `close`; LiteRT raises an AttributeError there."""


class CompilerFailedError(DeviceError):
    """The compiler is missing, broken or out of memory; with target "auto" the model runs on LiteRT instead."""


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
    """Operators of a model run on LiteRT, or the delegate stays out of an interpreter; says which and why."""


class CacheWarning(UserWarning):
    """Compiled programs cannot be kept; says where, why, and what helps. Models are compiled again at every start."""
