"""The names of `ai_edge_litert.interpreter`, for code that changes by its import line."""

from __future__ import annotations

from ai_edge_litert.interpreter import OpResolverType

from jitdelegate.api.delegate import GpuDelegate, load_delegate
from jitdelegate.api.interpreter import Interpreter, SignatureRunner

__all__ = ["GpuDelegate", "Interpreter", "OpResolverType", "SignatureRunner", "load_delegate"]
