"""The names of `ai_edge_litert.interpreter`, for code that changes by its import line.

Delegate, InterpreterWithCustomOps and OpResolverType are LiteRT's own: libraries of delegates and of custom operators
are LiteRT's, and an InterpreterWithCustomOps runs the whole model there.
"""

from __future__ import annotations

from jitdelegate.api.delegate import GpuDelegate, load_delegate
from jitdelegate.api.interpreter import Interpreter, SignatureRunner
from jitdelegate.base.late_names import late_names

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

if not TYPE_CHECKING:  # it imports numpy
    __getattr__ = late_names(__name__, __all__, "ai_edge_litert.interpreter")
