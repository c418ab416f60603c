"""python -m jitdelegate.commands.measurement.timed_side FILE: one timed start of a model, for `starts.py`.

FILE is a JSON object: "side" ("jitdelegate" or "litert"), "model" (a path), "options" (a file of options, for
jitdelegate), "threads", "signature" (a key, or null) and "inputs": per input its "name", "index", "type", "shape" and
"file" of raw bytes. Prints one JSON object: seconds by stage, the most memory, and what the cache answered.

It imports nothing of ours but what a user's program would.
"""

from __future__ import annotations

import json
import sys

from jitdelegate.commands.measurement.own_process import Clock, peak_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def main() -> int:
    """Exit status: 0, or 1 with the error on stderr."""
    with open(sys.argv[1], encoding="utf-8") as file:
        told = json.load(file)
    try:
        result = start(told)
    except (ValueError, RuntimeError) as error:
        sys.stderr.write(f"{' '.join(str(error).split())}\n")
        return 1
    sys.stdout.write(json.dumps(result))
    return 0


def start(told: dict[str, Any]) -> dict[str, Any]:
    """
    Raises:
        ValueError, RuntimeError: the model cannot be opened or run.
    """
    clock = Clock()
    import numpy as np

    clock.stage("numpy")
    delegates, interpreter_class = _ours(told["options"]) if told["side"] == "jitdelegate" else _litert()
    clock.stage("import")
    interpreter: Any = interpreter_class(
        told["model"], num_threads=told["threads"], experimental_delegates=delegates or None
    )
    values = {}
    for each in told["inputs"]:
        with open(each["file"], "rb") as file:
            values[each["name"]] = np.frombuffer(file.read(), each["type"]).reshape(each["shape"])
    if told["signature"] is None:
        for each in told["inputs"]:
            if each["resized"]:
                interpreter.resize_tensor_input(each["index"], each["shape"])
        interpreter.allocate_tensors()
    clock.stage("open")
    if told["signature"] is None:
        for each in told["inputs"]:
            interpreter.set_tensor(each["index"], values[each["name"]])
        interpreter.invoke()
        for detail in interpreter.get_output_details():
            interpreter.get_tensor(detail["index"])
    else:
        interpreter.get_signature_runner(told["signature"])(**values)
    clock.stage("first run")
    outcome = interpreter.report().cache.outcome if delegates else ""
    return {"seconds": clock.seconds, "peak_bytes": peak_bytes(), "cache": outcome}


def _ours(options: str) -> tuple[list[Any], Any]:
    from jitdelegate.api.delegate import GpuDelegate
    from jitdelegate.api.interpreter import Interpreter

    return [GpuDelegate.from_file(options)], Interpreter


def _litert() -> tuple[list[Any], Any]:
    from ai_edge_litert.interpreter import Interpreter

    return [], Interpreter


if __name__ == "__main__":
    sys.exit(main())
