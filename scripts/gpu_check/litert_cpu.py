"""LiteRT on this machine's CPU, for comparison where it is installed."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable

import numpy as np

from scripts.gpu_check.bundle import Prepared

LITERT = "LiteRT on the CPU"


def litert_call(prepared: Prepared) -> Callable[[], None]:
    """One inference of the program's model with XNNPACK on all CPUs, from host memory to host memory.

    Raises:
        ImportError: LiteRT is not installed.
    """
    from ai_edge_litert.interpreter import Interpreter

    content = zlib.decompress((prepared.folder / prepared.case.model).read_bytes())
    interpreter = Interpreter(model_content=content, num_threads=os.cpu_count())
    interpreter.allocate_tensors()
    details, outputs = interpreter.get_input_details(), interpreter.get_output_details()
    feeds = [
        np.frombuffer(value, detail["dtype"]).reshape(detail["shape"])
        for detail, (_, value) in zip(details, prepared.fed(prepared.inputs, 0), strict=True)
    ]

    def call() -> None:
        for detail, feed in zip(details, feeds, strict=True):
            interpreter.set_tensor(detail["index"], feed)
        interpreter.invoke()
        for detail in outputs:
            interpreter.get_tensor(detail["index"])

    return call
