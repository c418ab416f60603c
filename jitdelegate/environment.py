"""The names of `ai_edge_litert.environment`, for code that changes by its import line."""

from __future__ import annotations

from jitdelegate.api.environment import Environment, EnvironmentOptions

__all__ = ["Environment", "EnvironmentOptions"]
