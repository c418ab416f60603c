"""OpenTelemetry spans and Prometheus metrics, with the libraries of the extra `telemetry`."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jitdelegate.api.metrics import MetricsCollector
    from jitdelegate.api.tracing import JitDelegateInstrumentor

__all__ = ["JitDelegateInstrumentor", "MetricsCollector"]

_MODULES = {"JitDelegateInstrumentor": "jitdelegate.api.tracing", "MetricsCollector": "jitdelegate.api.metrics"}

if not TYPE_CHECKING:  # each needs its own library only

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(__import__(_MODULES[name], fromlist=[name]), name)
