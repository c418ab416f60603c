"""Environment: what several CompiledModels share, with the interface of `ai_edge_litert.environment`."""

from __future__ import annotations

import os

from jitdelegate.base.record import Record
from jitdelegate.errors import OptionError, TensorError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType


class EnvironmentOptions(Record):
    """Options of an Environment; they do not change.

    Attributes:
        runtime_path: folder of the runtime; the package's own unless another one is given, which changes nothing.
        compiler_plugin_path, dispatch_library_path: LiteRT's folders of libraries for NPUs; they change nothing.
        compiler_cache_dir: directory of compiled programs for models whose options name none; "" is the user's.
    """

    runtime_path: str | None = None
    compiler_plugin_path: str = ""
    dispatch_library_path: str = ""
    compiler_cache_dir: str | os.PathLike[str] = ""

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"EnvironmentOptions cannot be changed: {name}")

    def __hash__(self) -> int:
        return hash(repr(self))


class Environment:
    """What several CompiledModels share: a directory of compiled programs. `create` makes it.

    All models of a process share GPU contexts and the weights on GPUs, in one environment or in several.
    """

    def __init__(self, options: EnvironmentOptions) -> None:
        self._options = options
        self._closed = False

    @classmethod
    def create(
        cls,
        *,
        options: EnvironmentOptions | str | None = None,
        runtime_path: str | None = None,
        compiler_plugin_path: str = "",
        dispatch_library_path: str = "",
        compiler_cache_dir: str | os.PathLike[str] = "",
    ) -> Environment:
        """A new environment, from options or from their values; a string is the runtime's path.

        Raises:
            OptionError: both options and values are given. It is a ValueError, as in LiteRT.
        """
        if isinstance(options, str):
            if runtime_path is not None:
                raise OptionError("runtime_path was provided twice.")
            options, runtime_path = None, options
        given = EnvironmentOptions(runtime_path, compiler_plugin_path, dispatch_library_path, compiler_cache_dir)
        if options is None:
            options = given
        elif given != EnvironmentOptions():
            raise OptionError("Pass either options or environment path shortcuts.")
        path = options.runtime_path or os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        others = (options.compiler_plugin_path, options.dispatch_library_path, options.compiler_cache_dir)
        return cls(EnvironmentOptions(path, *others))

    @property
    def options(self) -> EnvironmentOptions:
        """The options, with the runtime's path."""
        return self._options

    @property
    def serialization_dir(self) -> str | os.PathLike[str] | None:
        """Directory of compiled programs for models whose options name none; None is the user's cache directory.

        Raises:
            TensorError: the environment is closed. It is a ValueError, as in LiteRT.
        """
        if self._closed:
            raise TensorError("Environment is no longer valid")
        return self._options.compiler_cache_dir or None

    @property
    def note(self) -> str:
        """Sentence for the report about options that change nothing; "" for none."""
        names = ("compiler_plugin_path", "dispatch_library_path")
        given = [name for name in names if getattr(self._options, name)]
        return f"{', '.join(given)}: LiteRT's libraries for NPUs are not used." if given else ""

    def close(self) -> None:
        """Make no further models in this environment; those that it has go on."""
        self._closed = True

    def __enter__(self) -> Environment:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
