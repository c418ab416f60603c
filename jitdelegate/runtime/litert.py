"""LiteRT's own classes, whatever stands under their names by now."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def interpreter_class() -> Any:
    """LiteRT's class `Interpreter`; imports LiteRT.

    Programs put ours in its place, `ai_edge_litert.interpreter.Interpreter = jitdelegate.Interpreter`. What we leave to
    LiteRT would then come back to us for ever. The class that LiteRT derives from its own still knows it.
    """
    from ai_edge_litert import interpreter

    return interpreter.InterpreterWithCustomOps.__base__
