"""LiteRT's own classes, even if a program has replaced them."""

from __future__ import annotations

from jitdelegate.errors import LibraryError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


def interpreter_class() -> Any:
    """LiteRT's class `Interpreter`; imports LiteRT.

    Programs may replace the class with `ai_edge_litert.interpreter.Interpreter = jitdelegate.Interpreter`. The fallback
    to LiteRT would then recurse without end. LiteRT's own subclass still refers to the original class.
    """
    from ai_edge_litert import interpreter

    return interpreter.InterpreterWithCustomOps.__base__


def delegate_of_library(library: str, options: Mapping[str, Any] | None) -> Any:
    """LiteRT's `Delegate` of another vendor's library; imports LiteRT.

    Args:
        library: its path, or a name that the system's loader finds.
    Raises:
        LibraryError: it cannot be loaded, is no delegate, or refuses the options.
    """
    import ctypes

    try:
        for symbol in ("tflite_plugin_create_delegate", "tflite_plugin_destroy_delegate"):
            getattr(ctypes.pydll.LoadLibrary(library), symbol)  # first: LiteRT's class complains again as it is deleted
        from ai_edge_litert import interpreter

        return interpreter.Delegate(library, options)
    except (OSError, ValueError, AttributeError) as error:
        raise LibraryError(f"Failed to load delegate from {library}\n{error}") from error
