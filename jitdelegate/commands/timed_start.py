"""python -m jitdelegate.commands.timed_start ROAD MODEL CACHE FOLDER THREADS RUNS: one start of a model, timed.

The demo and the start-up benchmark run it in fresh processes. ROAD is "jitdelegate" (inputs as bytes, no numpy),
"jitdelegate-numpy" (arrays in and out) or "litert". FOLDER holds `input-K.bin` per input and receives `output-K.bin`
per output. Prints one JSON object: seconds by stage, the median latency, outputs, and where the model ran.
"""

from __future__ import annotations

import sys
import time

from jitdelegate.commands.measurement.own_process import Clock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

STRING = b"an example"
"""Value of every element of a string input."""


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0, or 1 with the error on stderr."""
    road, model, cache, folder, threads, runs = sys.argv[1:] if argv is None else argv
    start = _start_litert if road == "litert" else _start_jitdelegate
    from jitdelegate.errors import JitDelegateError

    try:
        result, run = start(road, model, cache, folder, int(threads))
    except JitDelegateError as error:
        print(error, file=sys.stderr)
        return 1
    result["latency"] = _latency(run, int(runs))
    import json

    print(json.dumps(result))
    return 0


def _start_jitdelegate(
    road: str, path: str, cache: str, folder: str, threads: int
) -> tuple[dict[str, Any], Callable[[], Any]]:
    clock = Clock()
    if road == "jitdelegate-numpy":
        import numpy

        clock.stage("numpy")
    from jitdelegate.api.model import load

    clock.stage("import")
    model = load(path, serialization_dir=cache, prebuilt=(), remote=False, num_threads=threads)
    clock.stage("open")
    inputs = [_input(folder, position, info) for position, info in enumerate(model.inputs)]
    if road == "jitdelegate-numpy":
        inputs = [_array(value, info) for value, info in zip(inputs, model.inputs, strict=True)]
    clock.stage("inputs")
    outputs = _run(model, inputs)
    if road == "jitdelegate-numpy":
        outputs = tuple(numpy.asarray(output) for output in outputs)
    clock.stage("first run")
    report = model.report()
    result = {"seconds": clock.seconds, "outputs": _store(outputs, folder), "report": report.to_dict()}
    return result, lambda: _run(model, inputs)


def _run(model: Any, inputs: Sequence[Any]) -> tuple[Any, ...]:
    outputs = model(*inputs)
    return outputs if isinstance(outputs, tuple) else (outputs,)


def _start_litert(
    road: str, path: str, cache: str, folder: str, threads: int
) -> tuple[dict[str, Any], Callable[[], Any]]:
    clock = Clock()
    import numpy  # noqa: F401

    clock.stage("numpy")
    import ai_edge_litert.interpreter  # noqa: F401

    clock.stage("import")
    from jitdelegate.runtime.fallback import Fallback

    clock.stage("own import")
    fallback = Fallback(path, num_threads=threads)
    clock.stage("create")
    fallback.allocate()
    clock.stage("allocate")
    infos = [_Detail(detail) for detail in fallback.interpreter.get_input_details()]
    inputs = [_array(_input(folder, position, info), info) for position, info in enumerate(infos)]
    clock.stage("inputs")
    outputs = fallback.run(inputs)
    clock.stage("first run")
    clock.seconds.pop("own import")
    return {"seconds": clock.seconds, "outputs": _store(outputs, folder)}, lambda: fallback.run(inputs)


class _Detail:
    """LiteRT's description of an input, with the attributes of ours."""

    def __init__(self, detail: dict[str, Any]) -> None:
        self.shape = tuple(map(int, detail["shape"]))
        self.dtype = "string" if detail["dtype"].__name__ in ("bytes_", "object_") else detail["dtype"].__name__


def _input(folder: str, position: int, info: Any) -> Any:
    """The value of one input: its file's bytes, or strings, which have no fixed length."""
    if info.dtype == "string":
        import numpy

        return numpy.full(info.shape, STRING)
    with open(f"{folder}/input-{position}.bin", "rb") as file:
        return file.read()


def _array(value: Any, info: Any) -> Any:
    import numpy

    return value if info.dtype == "string" else numpy.frombuffer(value, info.dtype).reshape(info.shape)


def _store(outputs: Sequence[Any], folder: str) -> list[dict[str, Any]]:
    """Write the outputs, and return the type and shape of each."""
    for position, output in enumerate(outputs):
        with open(f"{folder}/output-{position}.bin", "wb") as file:
            file.write(_content(output))
    return [{"dtype": str(output.dtype), "shape": list(output.shape)} for output in outputs]


def _content(output: Any) -> bytes:
    """Bytes of an output's elements; strings as text, since numpy's memory holds only references."""
    if not isinstance(output.dtype, str) and output.dtype.kind in "OS":  # our own outputs are no strings, nor numpy's
        return repr(output.tolist()).encode()
    return bytes(memoryview(output))


def _latency(run: Callable[[], Any], runs: int) -> float | None:
    """Median seconds of a run; None for no runs."""
    seconds = []
    for _ in range(runs):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return sorted(seconds)[runs // 2] if runs else None


if __name__ == "__main__":
    sys.exit(main())
