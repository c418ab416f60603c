"""GpuDelegate: a delegate for LiteRT's interpreter, or for ours."""

from __future__ import annotations

import os
import sys

from jitdelegate.api import announce
from jitdelegate.base.options import DelegateOptions, OptionSignature
from jitdelegate.base.targets import AUTO
from jitdelegate.errors import DelegationError, DeviceError, OptionError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import CodeType
    from typing import Any, Unpack

    from jitdelegate.api.report import Report
    from jitdelegate.base.option_types import Keywords
    from jitdelegate.engine.hosted_model import HostedModel
    from jitdelegate.engine.litert_delegate.native_delegate import NativeDelegate

NAMES = ("jitdelegate", "libjitdelegate.so", "libjitdelegate")
"""Names of this package for `load_delegate`, which loads no library for them."""


class GpuDelegate:
    """A delegate for interpreters: `Interpreter(..., experimental_delegates=[GpuDelegate(serialization_dir=...)])`.

    `jitdelegate.Interpreter` takes its options and runs compiled programs itself. LiteRT's own interpreter delegates
    operators to it and runs the others. Several interpreters may share one.

    Attributes:
        options: the checked options; `jitdelegate.DelegateOptions` describes them.
    """

    __slots__ = ("_hosted", "_natives", "options")

    def __init__(
        self,
        serialization_dir: str | os.PathLike[str] | bool | None = None,
        model_token: str | None = None,
        target: str | None = None,
        num_threads: int | None = None,
        **keywords: Unpack[Keywords],
    ) -> None:
        """
        Args are the options of `jitdelegate.DelegateOptions`; None leaves one as it is by default. `backend` is another
        name of `target`, `experimental_enable_quant` of `quantized_models_allowed`.

        Raises:
            OptionError: an option is unknown, or its value is refused.
        """
        named = {
            "serialization_dir": serialization_dir,
            "model_token": model_token,
            "target": target,
            "num_threads": num_threads,
        }
        self._keep(DelegateOptions.from_keywords({**named, **keywords}))

    __signature__ = OptionSignature(__init__)

    def _keep(self, options: DelegateOptions) -> None:
        self.options = options
        self._natives: list[tuple[Any, Any]] = []
        self._hosted: HostedModel | None = None

    def __repr__(self) -> str:
        return f"GpuDelegate({self.options!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Another delegate with the same options, in no interpreter yet."""
        return GpuDelegate.from_options, (self.options,)

    def _get_native_delegate_pointer(self) -> int:
        """The address of a TfLiteDelegate, for the constructor of LiteRT's Interpreter.

        LiteRT tells a delegate nothing about the file. So the model is taken from the arguments of LiteRT's
        constructor, and compared with LiteRT's graph before anything is delegated.

        Raises:
            ModelError: the model cannot be read.
            DeviceError: this machine lacks the requested target.
            DelegationError: full delegation was required, and some operators (or all, on this system) cannot be.
        """
        import weakref

        interpreter, model, num_threads = _calling_interpreter()
        native = self._native_delegate(model, num_threads)
        self._natives = [kept for kept in self._natives if kept[0]() is not None]
        self._natives.append((weakref.ref(interpreter), native))
        return native.pointer

    def _native_delegate(self, model: Any, num_threads: int | None) -> NativeDelegate:
        from jitdelegate.engine.litert_delegate.delegate_client import DelegateClient, SilentClient
        from jitdelegate.engine.litert_delegate.native_delegate import NativeDelegate
        from jitdelegate.engine.litert_delegate.trust import platform_refusal
        from jitdelegate.engine.load_path import open_hosted
        from jitdelegate.engine.model_file import ModelFile

        self._hosted = None
        if model is None:
            reason = "it was not made from model_path or model_content"
            DelegateClient().warn(f"jitdelegate stays out of this interpreter: {reason}")
        if model is None or self.options.target == "litert":
            return NativeDelegate(SilentClient())
        trouble = platform_refusal()
        if trouble and self.options.require_full_delegation:
            raise DelegationError(f"full delegation was required: {trouble}")
        if trouble:
            return NativeDelegate(DelegateClient())  # which warns; nothing is compiled
        try:
            hosted = open_hosted(ModelFile(model, self.options.with_threads(num_threads), listener=announce))
            hosted.introduce()
            native = hosted.delegate()
        except (DeviceError, MemoryError) as error:
            lacks_memory = isinstance(error, MemoryError) or isinstance(error.__cause__, MemoryError)
            if not lacks_memory or self.options.target != AUTO or self.options.require_full_delegation:
                raise
            DelegateClient().warn(f"jitdelegate stays out of this interpreter: {str(error) or 'no memory'}")
            return NativeDelegate(SilentClient())
        self._hosted = hosted
        return native

    def report(self) -> Report | None:
        """Report on the latest of LiteRT's interpreters with this delegate: where its operators run and why.

        None where there is none, or the delegate stays out of it."""
        if self._hosted is None:
            return None
        from jitdelegate.api.report import hosted_report

        return hosted_report(self._hosted)

    @classmethod
    def from_options(cls, options: DelegateOptions) -> GpuDelegate:
        """A delegate with options that are already checked."""
        delegate = cls.__new__(cls)
        delegate._keep(options)
        return delegate

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> GpuDelegate:
        """A delegate with the options of a JSON or TOML file.

        Raises:
            OptionError: as `DelegateOptions.from_file`.
        """
        return cls.from_options(DelegateOptions.from_file(path))


def _calling_interpreter() -> tuple[Any, Any, int | None]:
    """(interpreter, model, threads) of the constructor of LiteRT's interpreter that asks for the delegate.

    The model is a path or content; it and the threads are None where they were not given. LiteRT calls the delegate
    without arguments, and its interpreter keeps none of its own, so that only the constructor's frame knows the model.
    It is known by its parameters, since a constructor may ask from within a function of its own.
    """
    frame = sys._getframe(2)
    while frame.f_back is not None and not _takes_a_model(frame.f_code):
        frame = frame.f_back
    if not _takes_a_model(frame.f_code):
        return _calling_interpreter, None, None
    arguments = frame.f_locals
    model = arguments["model_content"] or arguments["model_path"]
    return arguments["self"], model, arguments.get("num_threads")


def _takes_a_model(code: CodeType) -> bool:
    return code.co_name == "__init__" and {"self", "model_path", "model_content"}.issubset(code.co_varnames)


def load_delegate(library: str, options: Mapping[str, Any] | str | os.PathLike[str] | None = None) -> Any:
    """A delegate for interpreters, as LiteRT's function of this name.

    Args:
        library: "jitdelegate" makes a `GpuDelegate`. Any other library goes to LiteRT, which makes a `Delegate` of it.
        options: names to values; each value goes through `str()`, as in LiteRT. Or the path of a file with options of
            a `GpuDelegate`.
    Raises:
        OptionError: an unknown option (named), or a value or file that cannot be parsed.
        LibraryError: another library cannot be loaded, or refuses the options. It is an OSError and a ValueError.
    """
    if library not in NAMES:
        if isinstance(options, str | os.PathLike):
            raise OptionError(f"options of {library} are {options!r}, expected a mapping; only jitdelegate reads files")
        from jitdelegate.runtime.litert import delegate_of_library  # not before: it imports LiteRT

        return delegate_of_library(library, options)
    if isinstance(options, str | os.PathLike):
        return GpuDelegate.from_file(options)
    return GpuDelegate.from_options(DelegateOptions.from_strings({} if options is None else options))
