"""GpuDelegate: carries jitdelegate's options where LiteRT's interpreter takes a delegate."""

from __future__ import annotations

from jitdelegate.errors import OptionError
from jitdelegate.options import Options

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Mapping
    from typing import Any

NAMES = ("jitdelegate", "libjitdelegate.so", "libjitdelegate")
"""What `load_delegate` takes for a library: nothing is loaded, the delegate is this package."""


class GpuDelegate:
    """Options for one interpreter: `Interpreter(..., experimental_delegates=[GpuDelegate(serialization_dir=...)])`.

    Attributes:
        options: the checked options; `jitdelegate.options.Options` says what each of them means.
    """

    __slots__ = ("options",)

    def __init__(
        self,
        serialization_dir: str | os.PathLike[str] | bool | None = None,
        model_token: str | None = None,
        target: str = "auto",
        num_threads: int | None = None,
        **options: Any,
    ) -> None:
        """
        Raises:
            OptionError: an option is unknown, or its value is refused.
        """
        self.options = Options.from_mapping(
            {
                "serialization_dir": serialization_dir,
                "model_token": model_token,
                "target": target,
                "num_threads": num_threads,
                **options,
            }
        )

    def __repr__(self) -> str:
        return f"GpuDelegate({self.options!r})"

    @classmethod
    def from_options(cls, options: Options) -> GpuDelegate:
        """A delegate that carries options which are checked already."""
        delegate = cls.__new__(cls)
        delegate.options = options
        return delegate


def load_delegate(name: str, options: Mapping[str, Any] | None = None) -> GpuDelegate:
    """The delegate called "jitdelegate", from string options as LiteRT's function of this name passes them.

    Args:
        name: "jitdelegate". LiteRT's own `load_delegate` loads other libraries.
        options: names to values; each value goes through `str()`, as in LiteRT.
    Raises:
        OptionError: another name, an unknown option (named), or a text that does not parse.
    """
    if name not in NAMES:
        raise OptionError(f"no delegate {name!r} here, expected 'jitdelegate'; ai_edge_litert loads other libraries")
    return GpuDelegate.from_options(Options.from_strings({} if options is None else options))
