"""A GPU for whole processes: the driver stub stands where libcuda is opened, in every Python that a test starts.

`stubbed_environment(folder, kernels)` gives the environment of such processes. Kernels run in the PTX simulator in
processes that compare outputs, and do nothing in those that only take times.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from functools import cache
from itertools import count
from pathlib import Path

from tests.gpu.stub.library import Launched, Library
from tests.gpu.stub.memory import DeviceMemory
from tests.gpu.stub.simulator import SimulatedMemory, run_simulated

ROOT = Path(__file__).resolve().parents[3]
KERNELS = "JITDELEGATE_STUB_KERNELS"
"""The variable that names the folder of kernels; such processes have the stub."""
KINDS = "kinds.json"
FAULT = "JITDELEGATE_STUB_FAULT"
"""The variable that names what goes wrong, one of FAULTS."""
FAULTS = ("wrong", "unsteady", "race", "no sanitizer", "crash", "hang")
FAULTY, UNSTEADY = "normalize", 2
"""The family of kernels that go wrong, and every which time they do where they are unsteady."""
ENDING = "constants"
"""The section that ends or hangs."""
MEMORY = 1 << 25
"""Of a GPU that copies in Python."""
COMPARING = ("correctness", "orders", "CompiledModel", "run_once", "first_output")
"""Words of the command lines of processes that compare outputs."""
START = "import os\nif os.environ.get({variable!r}):\n    from tests.gpu.stub.processes import install\n    install()\n"


def write_kernels(folder: Path, ptx: Mapping[str, bytes], kinds: Mapping[str, str]) -> None:
    """Keep what processes with the stub need of kernels, by name: their PTX and their arguments' kinds."""
    folder.mkdir()
    for name, text in ptx.items():
        (folder / f"{name}.ptx").write_bytes(text)
    (folder / KINDS).write_text(json.dumps(dict(kinds)))


def stubbed_environment(folder: Path, kernels: Path) -> dict[str, str]:
    """The environment of processes that find the stub where others find libcuda.

    Args:
        folder: an empty one, for the module that Python imports as it starts.
        kernels: what `write_kernels` wrote.
    """
    (folder / "sitecustomize.py").write_text(START.format(variable=KERNELS))
    return {**os.environ, "PYTHONPATH": os.pathsep.join((str(folder), str(ROOT))), KERNELS: str(kernels)}


def install() -> None:
    """From now on this process has the stub."""
    from jitdelegate import targets
    from jitdelegate.runtime.cuda import device as cuda_device
    from jitdelegate.targets.cuda import target as cuda_target

    if f"--section {ENDING}" in " ".join(sys.orig_argv):
        if os.environ.get(FAULT) == "crash":
            os.abort()
        while os.environ.get(FAULT) == "hang":
            time.sleep(60)
    targets.may_be_here = lambda name: True
    cuda_target.open_library = _gpu
    cuda_device.declare = lambda library: None


@cache
def _gpu() -> Library:
    folder = Path(os.environ[KERNELS])
    kinds = json.loads((folder / KINDS).read_text())
    if not any(word in argument for argument in sys.argv for word in COMPARING):
        return Library(lambda *_: None, kinds, total_bytes=MEMORY)
    from tests.gpu.simulator import Memory, Module

    @cache
    def module(name: str) -> Module:
        return Module((folder / f"{name}.ptx").read_bytes())

    every, runs = {"wrong": 1, "unsteady": UNSTEADY}.get(os.environ.get(FAULT, ""), sys.maxsize), count(1)

    def execute(launched: Launched, memory: DeviceMemory) -> None:
        assert isinstance(memory, SimulatedMemory)
        run_simulated(module(launched.name), launched, memory)
        if launched.name.startswith(FAULTY) and next(runs) % every == 0:
            last = int(launched.values[0]) + 3  # with the sign of the first output
            memory.memory.write(last, bytes([memory.memory.read(last, 1)[0] ^ 0x80]))

    return Library(execute, kinds, memory=SimulatedMemory(Memory()))
