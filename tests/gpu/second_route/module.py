"""A kernel compiled for the CPU, and its launches."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

import llvmlite.binding as llvm
import numpy as np

import tests.gpu.second_route.tensor_core  # noqa: F401 - enters pieces
from tests.gpu.second_route.coroutine import ALIGNMENT, Coroutine
from tests.gpu.second_route.libdevice import definitions
from tests.gpu.second_route.row import WARP
from tests.gpu.second_route.schedule import PROBLEMS, run_grid
from tests.gpu.simulator import Memory
from tests.gpu.simulator.memory import BASE

llvm.initialize_native_target()
llvm.initialize_native_asmprinter()
DTYPES = {"ptr": np.int64, "i32": np.int32, "float": np.float32}
UNTOUCHED = 0xFF


class Module:
    """The kernel of an NVVM IR text.

    Raises:
        KeyError: it has PTX that `instructions.py` does not know.
    """

    def __init__(self, text: str) -> None:
        self.kernel = Coroutine(text)
        module = llvm.parse_assembly(self.kernel.text + definitions(set(re.findall(r'@"(__nv_\w+)"', text))))
        host = {"cpu": llvm.get_host_cpu_name(), "features": llvm.get_host_cpu_features().flatten()}
        machine = llvm.Target.from_default_triple().create_target_machine(opt=1, **host)
        module.triple, module.data_layout = machine.triple, str(machine.target_data)
        builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=1))
        builder.getModulePassManager().run(module, builder)
        self._engine = llvm.create_mcjit_compiler(module, machine)
        self._engine.finalize_object()
        self._functions = tuple(self._engine.get_function_address(name) for name in ("start", "resume", "destroy"))

    def launch(
        self,
        name: str,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        arguments: Sequence[int | float],
        shared_bytes: int = 0,
        *,
        memory: Memory,
        schedule: Literal["lockstep", "random"] = "lockstep",
        seed: int = 0,
        is_dependent: bool = False,
    ) -> None:
        """Runs the kernel over a grid, as the simulator's module does but without its checks: what lies far outside of
        all memory may end the process.

        Args:
            schedule: "lockstep" runs threads in the order of their numbers, each to where it waits for others; "random"
                runs blocks, warps and lanes in orders drawn from `seed`.
        Raises:
            AssertionError: threads do not meet, or something is written beside an allocation.
        """
        kernel, threads, blocks = self.kernel, block[0], grid[0] * grid[1] * grid[2]
        assert (name, *block[1:], threads % WARP, blocks % kernel.cluster) == (kernel.name, 1, 1, 0, 0)
        words = np.zeros(len(arguments), np.uint64)
        for number, (kind, argument) in enumerate(zip(kernel.parameters, arguments, strict=True)):
            value = argument - BASE + memory.data.ctypes.data if kind == "ptr" and argument else argument
            words[number : number + 1].view(DTYPES[kind])[0] = value
        draw = np.random.default_rng(seed).permutation if schedule == "random" else np.arange
        orders = draw(blocks // kernel.cluster), draw(kernel.cluster * threads // WARP), draw(WARP)
        nbytes = -(-(kernel.shared_bytes + shared_bytes) // ALIGNMENT) * ALIGNMENT
        problem = run_grid(self._functions, words.ctypes.data, grid, threads, kernel.cluster, nbytes, orders)
        assert not problem, f"{name}: {PROBLEMS[problem]}"
        assert (memory.data[memory.state == 0] == UNTOUCHED).all(), f"{name} writes beside an allocation"
