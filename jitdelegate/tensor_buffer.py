"""The names of `ai_edge_litert.tensor_buffer`, for code that changes by its import line."""

from __future__ import annotations

from jitdelegate.api.tensor_buffer import TensorBuffer

__all__ = ["TensorBuffer"]
