"""Starts from a prebuilt folder, in a process of its own, by a user whom nobody knows and who has no home."""

from __future__ import annotations

import os

NOBODY = 65534


def on_levels(models: str, folder: str, *levels: str) -> str:
    """What the cache did while models started on each level of the CPU, as JSON; a warning is an error.

    "signatures.tflite" runs all its signatures, also for four rows, and "host.tflite" in LiteRT's own interpreter too.
    """
    import json
    import warnings

    import ai_edge_litert.interpreter as litert
    import numpy as np

    import jitdelegate
    from jitdelegate.runtime.cache.store import counts

    def read(name: str) -> bytes:
        with open(os.path.join(models, name), "rb") as file:
            return file.read()

    signatures, host = map(read, ("signatures.tflite", "host.tflite"))

    def start(level: str) -> list[str]:
        options: dict[str, str] = {"prebuilt": folder, "cpu_features": level, "target": "cpu"}
        with jitdelegate.load(signatures, options=options) as model:
            model.prepare([{"x": (4, 2)}])
            for key in model.signatures:
                model.run({"x": np.ones((4, 2), np.float32)}, key)
            paths = [model.report().cache.path]
        with jitdelegate.load(host, options=options) as model:
            model(*(np.ones(port.shape, port.dtype) for port in model.inputs))
            paths.append(model.report().cache.path)
        delegate = jitdelegate.GpuDelegate(prebuilt=folder, cpu_features=level, target="cpu")
        interpreter = litert.Interpreter(model_content=host, experimental_delegates=[delegate])
        interpreter.allocate_tensors()
        interpreter.invoke()
        return paths

    start(levels[0])  # imports what others may not read
    counts.reset()
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        paths = [path for level in levels for path in start(level)]
    return json.dumps({"paths": paths, "hits": counts.hits, "misses": counts.misses, "writes": counts.writes})
