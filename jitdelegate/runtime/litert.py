"""LiteRT's own classes, even if a program has replaced them."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def interpreter_class() -> Any:
    """LiteRT's class `Interpreter`; imports LiteRT.

    Programs may replace it by ours, `ai_edge_litert.interpreter.Interpreter = jitdelegate.Interpreter`, and falling
    back to LiteRT would recurse without end. A class that LiteRT derives from its own still refers to it.
    """
    from ai_edge_litert import interpreter

    return interpreter.InterpreterWithCustomOps.__base__
