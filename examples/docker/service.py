"""Opens the image's models without compiling, and runs each once."""

from pathlib import Path

import numpy as np

import jitdelegate

for path in sorted(Path("models").glob("*.tflite")):
    with jitdelegate.load(path, target="cpu", prebuilt="programs") as model:
        report = model.report()
        assert report.cache.hit, report.cache.reason
        model(*(np.zeros(port.shape, port.dtype) for port in model.inputs))
        print(f"{path.name}: warm, for {report.features}")
