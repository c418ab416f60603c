"""The public objects. Read `model.py` first.

- `model.py`: `load(path_or_bytes, ...) -> Model`, which is called with inputs and returns outputs.
- `model_session.py`: `ModelSession`, which keeps tensors such as KV caches from run to run.
- `compiled_model.py`: `CompiledModel`, LiteRT Next's interface; `buffer_runs.py`: its runs on buffers;
  `signature_arguments.py`: the order of the buffers. `environment.py`: `Environment`.
- `tensor_buffer.py`: `TensorBuffer`; `array_types.py`: the types of arrays that it takes.
- `batch_predictor.py`: `BatchPredictor`; `dynamic_batcher.py`: `DynamicBatcher`. Both use `row_batches.py`.
- `tracing.py`: spans of OpenTelemetry; `metrics.py`: counters for Prometheus.
- `interpreter.py`: `Interpreter` and `SignatureRunner`, with LiteRT's methods.
- `delegate.py`: `GpuDelegate` and `load_delegate`, for our interpreter and for LiteRT's own.
- `report.py`: `Report`, where each operator runs and why. `delegate_warning.py`: the same as a warning.
- `kernel_times.py`: `KernelTime`, the time of each kernel of a profiled model.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jitdelegate.engine.executable import Executable


def announce(executable: Executable) -> None:
    """Warn about operators on LiteRT. Defined here, so that a model without any loads no module for it."""
    from jitdelegate.api import delegate_warning

    delegate_warning.announce(executable)
