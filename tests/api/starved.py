"""python -m tests.api.starved FOLDER: runs a model with more and more address space; prints a line of JSON per
result."""

from __future__ import annotations

import json
import os
import resource
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter as LiteRT

import jitdelegate
from tests.api.live_model import WIDTH, model

LIMITS = (10, 24, 64, 90, 600)
"""MB beside what the process has; the model has 16."""
PAGE = os.sysconf("SC_PAGE_SIZE")


def alone(path: str, _: str) -> dict[str, Any]:
    """LiteRT's answer."""
    return {"sum": invoked(LiteRT(path, num_threads=1))}


def invoked(interpreter: Any) -> float:
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], value())
    interpreter.invoke()
    return float(np.abs(interpreter.get_tensor(interpreter.get_output_details()[0]["index"])).sum())


def loaded(path: str, cache: str) -> dict[str, Any]:
    made = jitdelegate.load(path, serialization_dir=cache, num_threads=1)
    answer = float(np.abs(np.asarray(made(value()))).sum())
    report = made.report()
    return {"sum": answer, "target": report.target, "reason": report.operators[0].reason}


def ours(path: str, cache: str) -> dict[str, Any]:
    delegate = jitdelegate.GpuDelegate(serialization_dir=cache, num_threads=1)
    made = jitdelegate.Interpreter(path, experimental_delegates=[delegate])
    return {"sum": invoked(made), "target": made.report().target, "reason": made.report().operators[0].reason}


def hosted(path: str, cache: str) -> dict[str, Any]:
    delegate = jitdelegate.GpuDelegate(serialization_dir=cache, num_threads=1)
    answer = invoked(LiteRT(path, num_threads=1, experimental_delegates=[delegate]))
    report = delegate.report()
    if report is None:  # it stayed out, and has warned
        return {"sum": answer, "target": "litert", "reason": "no memory"}
    return {"sum": answer, "target": report.target, "reason": report.operators[0].reason}


def value() -> np.ndarray:
    return np.linspace(-1, 1, WIDTH, dtype=np.float32).reshape(1, WIDTH)


ROADS = {"litert": alone, "load": loaded, "interpreter": ours, "delegate": hosted}


def tell(**found: Any) -> None:
    """A line for the parent."""
    sys.stdout.write(f"{json.dumps(found)}\n")
    sys.stdout.flush()


def main() -> None:
    """One forked child per road and limit, first with an empty cache, then with a warm one."""
    folder = Path(sys.argv[1])
    path = folder / "model.tflite"
    path.write_bytes(model())
    for start in ("cold", "warm"):
        for road in ROADS:
            for limit in LIMITS:
                cache = folder / ("warm" if start == "warm" else f"{road}{limit}")
                child = os.fork()
                if not child:
                    answer(start, road, limit, str(path), str(cache))
                _, status = os.waitpid(child, 0)
                if status:
                    tell(start=start, road=road, limit=limit, died=status)
        for road in ROADS:  # fills the cache
            ROADS[road](str(path), str(folder / "warm"))


def answer(start: str, road: str, limit: int, path: str, cache: str) -> None:
    """The child's life."""
    warnings.simplefilter("ignore")
    used = int(Path("/proc/self/statm").read_text().split()[0]) * PAGE
    try:
        resource.setrlimit(resource.RLIMIT_AS, (used + (limit << 20), resource.RLIM_INFINITY))
        found = ROADS[road](path, cache)
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is the answer
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        found = {
            "error": type(error).__name__,
            "words": str(error),
            "is_litert_s": isinstance(error, (RuntimeError, ValueError)),
        }
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    tell(start=start, road=road, limit=limit, **found)
    os._exit(0)


if __name__ == "__main__":
    main()
