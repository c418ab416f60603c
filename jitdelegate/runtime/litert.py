"""LiteRT's own classes, even if a program has replaced them."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def interpreter_class() -> Any:
    """LiteRT's class `Interpreter`; imports LiteRT.

    Programs may replace the class with `ai_edge_litert.interpreter.Interpreter = jitdelegate.Interpreter`. The fallback
    to LiteRT would then recurse without end. LiteRT's own subclass still refers to the original class.
    """
    from ai_edge_litert import interpreter

    return interpreter.InterpreterWithCustomOps.__base__
