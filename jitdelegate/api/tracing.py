"""JitDelegateInstrumentor: OpenTelemetry spans of what a process does with models. The extra `telemetry` installs its
libraries."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from opentelemetry import trace
from opentelemetry.instrumentation.instrumentor import BaseInstrumentor
from opentelemetry.instrumentation.utils import unwrap
from wrapt import wrap_function_wrapper

import jitdelegate
from jitdelegate.api.dynamic_batcher import DynamicBatcher
from jitdelegate.api.model import Model
from jitdelegate.api.row_batches import RowBatches
from jitdelegate.engine import load_path

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from opentelemetry.trace import Span, Tracer

    from jitdelegate.engine.executable import Executable

    Wrapped = Callable[..., Any]
    Describe = Callable[[Span, Any, tuple[Any, ...]], None]


class JitDelegateInstrumentor(BaseInstrumentor):  # type: ignore[misc]  # the library has no types
    """Makes spans, as OpenTelemetry's other instrumentors do.

    - `jitdelegate.fetch`: a program comes from the cache or the compiler. Attributes: `jitdelegate.model`, `.target`,
      `.cache.hit`, `.cache.reason` (of a miss), `.operators`, `.delegated`, and `.seconds.STAGE` for each stage.
    - `jitdelegate.run`: a call of a `Model`, with `jitdelegate.model`.
    - `jitdelegate.request`: a call of a `DynamicBatcher`, from its row until its outputs.
    - `jitdelegate.batch`: rows that run together, with `jitdelegate.rows`, in a thread of the batcher or predictor.

        JitDelegateInstrumentor().instrument()

    The command `opentelemetry-instrument python server.py` finds it without a line of code. A process that does not
    instrument pays nothing.
    """

    def instrumentation_dependencies(self) -> Collection[str]:
        """The package that is instrumented, for the base class."""
        return ("jitdelegate",)

    def _instrument(self, *, tracer_provider: Any = None, **_: Any) -> None:
        """
        Args:
            tracer_provider: makes the spans; None is the global one.
        """
        tracer = trace.get_tracer("jitdelegate", jitdelegate.__version__, tracer_provider)
        wrap_function_wrapper(load_path, "fetch", partial(_fetch, tracer))
        wrap_function_wrapper(Model, "run", partial(_run, tracer))
        wrap_function_wrapper(Model, "__call__", partial(_run, tracer))
        wrap_function_wrapper(DynamicBatcher, "__call__", partial(_request, tracer))
        wrap_function_wrapper(RowBatches, "run", partial(_batch, tracer))

    def _uninstrument(self, **_: Any) -> None:
        unwrap(load_path, "fetch")
        for kind, names in ((Model, ("run", "__call__")), (DynamicBatcher, ("__call__",)), (RowBatches, ("run",))):
            for name in names:
                unwrap(kind, name)


def _fetch(tracer: Tracer, wrapped: Wrapped, _: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    executable: Executable = args[0]
    with tracer.start_as_current_span("jitdelegate.fetch") as span:
        result = wrapped(*args, **kwargs)
        if span.is_recording():
            program, lookup = executable.program, executable.lookup
            found: dict[str, str | bool | int | float] = {
                "model": _model(executable),
                "target": program.target,
                "cache.hit": lookup.hit,
                "operators": len(program.operators),
                "delegated": program.delegated,
                **({"cache.reason": lookup.reason} if lookup.reason else {}),
                **{f"seconds.{stage}": taken for stage, taken in executable.seconds.items()},
            }
            span.set_attributes({f"jitdelegate.{name}": value for name, value in found.items()})
        return result


def _run(tracer: Tracer, wrapped: Wrapped, model: Model, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    with tracer.start_as_current_span("jitdelegate.run") as span:
        span.set_attribute("jitdelegate.model", _model(model._opened))
        return wrapped(*args, **kwargs)


def _model(executable: Executable) -> str:
    """The model's path, or what it is instead of a file."""
    origin = executable.source.origin
    return origin if isinstance(origin, str) else executable.source.name


async def _request(
    tracer: Tracer, wrapped: Wrapped, _: DynamicBatcher, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Any:
    with tracer.start_as_current_span("jitdelegate.request"):
        return await wrapped(*args, **kwargs)


def _batch(tracer: Tracer, wrapped: Wrapped, _: RowBatches, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    with tracer.start_as_current_span("jitdelegate.batch") as span:
        results = wrapped(*args, **kwargs)
        span.set_attribute("jitdelegate.rows", max((len(column) for column in results.values()), default=0))
        return results
