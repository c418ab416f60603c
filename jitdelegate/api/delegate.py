"""GpuDelegate: a delegate for LiteRT's interpreter, or for ours."""

from __future__ import annotations

import os
import sys

from jitdelegate.api import announce
from jitdelegate.errors import OptionError
from jitdelegate.options import Options

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from jitdelegate.api.report import Report
    from jitdelegate.engine.hosted_model import HostedModel
    from jitdelegate.litert_delegate.native_delegate import NativeDelegate

NAMES = ("jitdelegate", "libjitdelegate.so", "libjitdelegate")
"""Library names that `load_delegate` accepts. No library is loaded: the delegate is this package."""


class GpuDelegate:
    """A delegate for interpreters: `Interpreter(..., experimental_delegates=[GpuDelegate(serialization_dir=...)])`.

    `jitdelegate.Interpreter` takes its options and runs compiled programs itself. LiteRT's own interpreter delegates
    operators to it and runs the others. Several interpreters may share one.

    Attributes:
        options: the checked options; `jitdelegate.options.Options` describes them.
    """

    __slots__ = ("_hosted", "_natives", "options")

    def __init__(
        self,
        serialization_dir: str | os.PathLike[str] | bool | None = None,
        model_token: str | None = None,
        target: str | None = None,
        num_threads: int | None = None,
        **options: Any,
    ) -> None:
        """
        Args:
            target: None is "auto", or the value of `backend`, the other name of this option.
        Raises:
            OptionError: an option is unknown, or its value is refused.
        """
        named = {
            "serialization_dir": serialization_dir,
            "model_token": model_token,
            "num_threads": num_threads,
            **({} if target is None else {"target": target}),
        }
        self._keep(Options.from_mapping({**named, **options}))

    def _keep(self, options: Options) -> None:
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
            DelegationError: full delegation was required, and some operators cannot be delegated.
        """
        import weakref

        interpreter, model, num_threads = _calling_interpreter()
        native = self._native_delegate(model, num_threads)
        self._natives = [each for each in self._natives if each[0]() is not None]
        self._natives.append((weakref.ref(interpreter), native))
        return native.pointer

    def _native_delegate(self, model: Any, num_threads: int | None) -> NativeDelegate:
        from jitdelegate.engine.load_path import open_hosted
        from jitdelegate.engine.model_file import ModelFile
        from jitdelegate.litert_delegate.delegate_client import DelegateClient, SilentClient
        from jitdelegate.litert_delegate.native_delegate import NativeDelegate

        self._hosted = None
        if model is None:
            reason = "it was not made from model_path or model_content"
            DelegateClient().warn(f"jitdelegate stays out of this interpreter: {reason}")
        if model is None or self.options.target == "litert":
            return NativeDelegate(SilentClient())
        self._hosted = open_hosted(ModelFile(model, self.options.with_threads(num_threads), listener=announce))
        self._hosted.introduce()
        return self._hosted.delegate()

    def report(self) -> Report | None:
        """Report on the latest of LiteRT's interpreters with this delegate: where its operators run and why.

        None where there is none, or the delegate stays out of it."""
        if self._hosted is None:
            return None
        from jitdelegate.api.report import hosted_report

        return hosted_report(self._hosted)

    @classmethod
    def from_options(cls, options: Options) -> GpuDelegate:
        """A delegate with options that are already checked."""
        delegate = cls.__new__(cls)
        delegate._keep(options)
        return delegate

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> GpuDelegate:
        """A delegate with the options of a JSON or TOML file.

        Raises:
            OptionError: as `Options.from_file`.
        """
        return cls.from_options(Options.from_file(path))


def _calling_interpreter() -> tuple[Any, Any, int | None]:
    """(interpreter, model, threads) of the constructor of LiteRT's interpreter that asks for the delegate.

    The model is a path or content; it and the threads are None where they were not given. LiteRT calls the delegate
    without arguments, so the constructor's frame is the only place that knows the model.
    """
    arguments = sys._getframe(2).f_locals
    model = arguments.get("model_content") or arguments.get("model_path")
    return arguments.get("self", _calling_interpreter), model, arguments.get("num_threads")


def load_delegate(name: str, options: Mapping[str, Any] | str | os.PathLike[str] | None = None) -> GpuDelegate:
    """The delegate called "jitdelegate", from string options as LiteRT's function of this name passes them.

    Args:
        name: "jitdelegate". LiteRT's own `load_delegate` loads other libraries.
        options: names to values; each value goes through `str()`, as in LiteRT. Or the path of a file with options.
    Raises:
        OptionError: another name, an unknown option (named), or a value or file that cannot be parsed.
    """
    if name not in NAMES:
        raise OptionError(f"no delegate {name!r} here, expected 'jitdelegate'; ai_edge_litert loads other libraries")
    if isinstance(options, str | os.PathLike):
        return GpuDelegate.from_file(options)
    return GpuDelegate.from_options(Options.from_strings({} if options is None else options))
