"""The names of `ai_edge_litert.interpreter`, for code that changes by its import line.

Delegate, InterpreterWithCustomOps and OpResolverType are LiteRT's own: libraries of delegates and of custom operators
are LiteRT's, and an InterpreterWithCustomOps runs the whole model there.
"""

from __future__ import annotations

from jitdelegate.api.delegate import GpuDelegate, load_delegate
from jitdelegate.api.interpreter import Interpreter, SignatureRunner

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ai_edge_litert.interpreter import Delegate, InterpreterWithCustomOps, OpResolverType

__all__ = [
    "Delegate",
    "GpuDelegate",
    "Interpreter",
    "InterpreterWithCustomOps",
    "OpResolverType",
    "SignatureRunner",
    "load_delegate",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module 'jitdelegate.interpreter' has no attribute {name!r}")
        from ai_edge_litert import interpreter  # not before: it imports numpy

        return getattr(interpreter, name)
