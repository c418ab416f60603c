"""A PTX module and the launch of its kernels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NoReturn

import numpy as np

import tests.gpu.simulator.instructions  # noqa: F401 - registers the instructions
from tests.gpu.simulator.decode import Decoder, immediate
from tests.gpu.simulator.errors import SimulationError
from tests.gpu.simulator.group import Group, Placement
from tests.gpu.simulator.memory import BASE, Memory
from tests.gpu.simulator.order import WARP, Clock
from tests.gpu.simulator.parse import parse
from tests.gpu.simulator.program import Block, build
from tests.gpu.simulator.run import Strands, run_batch
from tests.gpu.simulator.shadow import GlobalShadow
from tests.gpu.simulator.spaces import SHARED_START, GlobalSpace, SharedSpace
from tests.gpu.simulator.syntax import Function, Immediate, Instruction, Variable, Vector
from tests.gpu.simulator.types import TYPES, Array

BATCH_LANES = 8192
Size = tuple[int, int, int]
LARGEST_GRID = (2**31 - 1, 65535, 65535)
LARGEST_BLOCK = (1024, 1024, 64)
MOST_THREADS, MOST_BLOCKS_OF_CLUSTER = 1024, 8
STATIC_SHARED = 48 << 10
"""Bytes of shared memory that a kernel may declare; more has to be asked for at the launch."""
SHARED = {
    72: 96,
    75: 64,
    **dict.fromkeys((80, 87), 163),
    **dict.fromkeys((86, 89, 120, 121), 99),
    **dict.fromkeys((90, 100, 103, 110), 227),
}
"""KiB of shared memory that a block may have, by architecture. Source of all limits: CUDA C++ Programming Guide, table
"Technical Specifications per Compute Capability"."""


@dataclass(frozen=True)
class Layout:
    """Where the variables of a kernel lie: symbol -> address, and the bytes of shared memory needed."""

    addresses: dict[str, int]
    shared_bytes: int


class Module:
    """The kernels of a PTX text.

    Raises:
        SimulationError: kind "syntax", for text that cannot be read.
    """

    def __init__(self, ptx_text: str | bytes) -> None:
        self.text = parse(ptx_text)
        self._programs: dict[tuple[str, tuple[tuple[str, int], ...]], list[Block]] = {}

    @property
    def kernels(self) -> tuple[str, ...]:
        """The names of the kernels in the order of the text."""
        return tuple(self.text.functions)

    def launch(
        self,
        name: str,
        grid: Sequence[int],
        block: Sequence[int],
        arguments: Sequence[int | float],
        shared_bytes: int = 0,
        *,
        memory: Memory,
        schedule: Literal["lockstep", "random"] = "lockstep",
        seed: int = 0,
        check_races: bool = True,
        is_dependent: bool = False,
        limit: int = 4_000_000,
    ) -> int:
        """Runs a kernel over a grid; the number of instructions executed, each counted once for lanes that share it.

        Args:
            grid, block: one to three sizes (x, y, z).
            arguments: one per parameter; ints wrap to the parameter's width.
            shared_bytes: dynamic shared memory.
            schedule: "lockstep" runs all warps together; "random" lets them take turns, of some basic blocks each, in
                an order drawn from `seed`.
            check_races: whether to look for races in shared memory and between the blocks in global memory.
            is_dependent: whether launches before this one may still run until the kernel waits for them: until then it
                may touch only memory that `Memory.keep` has noted, and all its threads wait.
            limit: how many instructions one group of lanes may execute.
        Raises:
            SimulationError: the kernel or the launch is wrong; see there for the kinds.
        """
        launch = _Launch(self, name, _size(grid), _size(block), arguments, shared_bytes, memory, check_races, limit)
        launch.is_dependent = is_dependent
        if schedule not in ("lockstep", "random"):
            raise SimulationError("launch", f"schedule is {schedule!r}, expected 'lockstep' or 'random'")
        return launch.run(np.random.default_rng(seed) if schedule == "random" else None)

    def _kernel(self, name: str) -> Function:
        if name not in self.text.functions:
            raise SimulationError("launch", f"no kernel {name!r}, the module has {', '.join(self.kernels) or 'none'}")
        return self.text.functions[name]

    def program(self, name: str, addresses: dict[str, int]) -> list[Block]:
        """The decoded kernel, once for each set of symbol addresses."""
        key = (name, tuple(sorted(addresses.items())))
        if key not in self._programs:
            kernel = self._kernel(name)
            offsets, _ = parameter_offsets(kernel)
            self._programs[key] = build(kernel, Decoder(kernel, addresses, offsets))
        return self._programs[key]


class _Launch:
    is_dependent = False

    def __init__(
        self,
        module: Module,
        name: str,
        grid: Size,
        block: Size,
        arguments: Sequence[int | float],
        shared_bytes: int,
        memory: Memory,
        check_races: bool,
        limit: int,
    ) -> None:
        self.kernel = module._kernel(name)
        self.grid, self.block, self.memory = grid, block, memory
        self.check_races, self.limit = check_races, limit
        self.threads = block[0] * block[1] * block[2]
        self.parameters = _parameter_bytes(self.kernel, arguments)
        self._check_size()
        self.layout = _layout(module, self.kernel, memory)
        self.program = module.program(name, self.layout.addresses)
        self.cluster = self.kernel.cluster
        self.shared_bytes = self.layout.shared_bytes + shared_bytes
        self._check_shared(self.layout.shared_bytes, module.text.architecture)
        self.granule = _granule(self.kernel, "shared")
        self.clock = Clock()
        shadow = GlobalShadow(memory.data.size, _granule(self.kernel, "global"), memory.raced) if check_races else None
        self.global_space = GlobalSpace(memory, shadow)

    def _check_size(self) -> None:
        """
        Raises:
            SimulationError: "launch", for what a driver refuses.
        """
        most, cluster = min(self.kernel.max_threads or MOST_THREADS, MOST_THREADS), self.kernel.cluster
        sizes = [*zip(self.grid, LARGEST_GRID, strict=True), *zip(self.block, LARGEST_BLOCK, strict=True)]
        if not (self.threads <= most and all(1 <= size <= limit for size, limit in sizes)):
            self._refuse(f"{self.threads} threads a block (at most {most}) in a grid of {self.grid}")
        if self.grid[2] % cluster or cluster > MOST_BLOCKS_OF_CLUSTER:
            self._refuse(f"a grid of {self.grid} is not made of clusters of {cluster} blocks along z, at most 8")

    def _check_shared(self, declared: int, architecture: int) -> None:
        """As `_check_size`, for shared memory."""
        most = SHARED.get(architecture, min(SHARED.values())) << 10
        if declared > STATIC_SHARED or self.shared_bytes > most:
            limits = f"at most {STATIC_SHARED} and {most} on sm_{architecture}"
            self._refuse(f"{declared} bytes of shared memory are declared, {self.shared_bytes} in all; {limits}")

    def _refuse(self, what: str) -> NoReturn:
        raise SimulationError("launch", what, kernel=self.kernel.name)

    def run(self, rng: np.random.Generator | None) -> int:
        with np.errstate(all="ignore"):
            steps = sum(self._run_batch(numbers, rng) for numbers in self._batches(rng))
        if self.memory.touched is not None and self.global_space.shadow:
            self.memory.touched += self.global_space.shadow.touched(BASE)
        return steps

    def _batches(self, rng: np.random.Generator | None) -> Iterator[Array]:
        """The blocks in batches of whole clusters; the blocks of a cluster stand together, by rank."""
        layer, each = self.grid[0] * self.grid[1], self.cluster
        blocks = np.arange(layer * self.grid[2]).reshape(-1, each, layer)
        numbers = blocks.transpose(0, 2, 1).reshape(-1, each)
        if rng is not None:
            numbers = numbers[rng.permutation(len(numbers))]
        at_once = max(1, BATCH_LANES // (-(-self.threads // WARP) * WARP) // each)
        for start in range(0, len(numbers), at_once):
            yield numbers[start : start + at_once].reshape(-1)

    def _run_batch(self, numbers: Array, rng: np.random.Generator | None) -> int:
        shared = SharedSpace(numbers.size, self.shared_bytes, self.granule, self.check_races, self.cluster)
        groups = [self._group(placement, shared) for placement in self._placements(numbers, rng)]
        strands = [Strands(group, self.program, self.kernel.name, self.limit) for group in groups]
        run_batch(strands, shared, numbers.size, rng)
        return sum(group.steps for group in groups)

    def _placements(self, numbers: Array, rng: np.random.Generator | None) -> Iterator[Placement]:
        """All lanes as one group, or one warp of each block a group, in an order drawn for each block."""
        blocks, warps = numbers.size, -(-self.threads // WARP)
        if rng is None:
            thread, block = np.tile(np.arange(warps * WARP), blocks), np.repeat(np.arange(blocks), warps * WARP)
            yield Placement(thread, block, numbers, self.grid, self.block)
            return
        orders = np.stack([rng.permutation(warps) for _ in range(blocks)])
        for rank in range(warps):
            thread = (orders[:, rank, None] * WARP + np.arange(WARP)).reshape(-1)
            block = np.repeat(np.arange(blocks), WARP)
            yield Placement(thread, block, numbers, self.grid, self.block)

    def _group(self, placement: Placement, shared: SharedSpace) -> Group:
        registers, space = self.kernel.registers, self.global_space
        early = self.is_dependent
        return Group(registers, placement, shared, space, self.parameters, self.clock, is_dependent=early)


def _size(numbers: Sequence[int]) -> Size:
    x, y, z = (*(int(number) for number in numbers), 1, 1)[:3]
    return x, y, z


def parameter_offsets(kernel: Function) -> tuple[dict[str, int], int]:
    """(name -> byte offset, bytes in all) of the parameters of a kernel."""
    offsets, end = {}, 0
    for parameter in kernel.parameters:
        align = max(parameter.align, TYPES[parameter.type].size)
        offsets[parameter.name] = start = -(-end // align) * align
        end = start + TYPES[parameter.type].size * max(1, parameter.count)
    return offsets, end


def _parameter_bytes(kernel: Function, arguments: Sequence[int | float]) -> Array:
    if len(arguments) != len(kernel.parameters):
        what = f"{len(arguments)} arguments, expected {len(kernel.parameters)}"
        raise SimulationError("launch", what, kernel=kernel.name)
    offsets, size = parameter_offsets(kernel)
    buffer = np.zeros(size + 8, np.uint8)
    for parameter, argument in zip(kernel.parameters, arguments, strict=True):
        contents = _argument_bytes(parameter, argument)
        buffer[offsets[parameter.name] :][: len(contents)] = np.frombuffer(contents, np.uint8)
    return buffer


def _argument_bytes(parameter: Variable, argument: float) -> bytes:
    kind = TYPES[parameter.type]
    if kind.is_float:
        return kind.encode(np.array([argument], np.float64)).tobytes()
    if isinstance(argument, float):  # NVVM passes float arguments as .b32 too
        return np.array([argument], f"f{kind.size}").tobytes()
    return (int(argument) & ((1 << kind.bits) - 1)).to_bytes(kind.size, "little")


def _layout(module: Module, kernel: Function, memory: Memory) -> Layout:
    """Places the variables a kernel can name; those in global memory once for each memory."""
    addresses: dict[str, int] = {}
    dynamic, shared_end = [], 0
    for variable in [*module.text.variables.values(), *kernel.variables.values()]:
        size = TYPES[variable.type].size * variable.count
        if variable.space == "shared" and variable.count == 0:
            dynamic.append(variable.name)
        elif variable.space == "shared":
            start = -(-shared_end // variable.align) * variable.align
            addresses[variable.name], shared_end = SHARED_START + start, start + size
        elif variable.space == "global":
            addresses[variable.name] = _place_variable(module, variable, memory)
    shared_end = -(-shared_end // 128) * 128 if dynamic else shared_end
    addresses.update(dict.fromkeys(dynamic, SHARED_START + shared_end))
    return Layout(addresses, shared_end)


def _place_variable(module: Module, variable: Variable, memory: Memory) -> int:
    key = (module, variable.name)
    if key not in memory.variables:
        kind = TYPES[variable.type]
        contents = np.zeros(max(1, variable.count), kind.raw)
        for number, text in enumerate(variable.initial):
            contents[number] = immediate(text, kind)[0]
        memory.variables[key] = memory.keep(memory.place(contents))
    return memory.variables[key]


def _granule(kernel: Function, space: str) -> int:
    """The smallest number of bytes one access to a memory space may touch, at most 16."""
    return min((_access_bytes(one, space) for one in kernel.instructions), default=16)


def _access_bytes(one: Instruction, space: str) -> int:
    elsewhere = {"global", "shared", "param"} - {space}
    if one.name == "cp":
        sizes = [int(operand.text) for operand in one.operands[2:3] if isinstance(operand, Immediate)]
        return min(sizes, default=16)
    if one.name not in ("ld", "st") or elsewhere & set(one.parts):
        return 16
    kind = next(TYPES[part] for part in one.parts[::-1] if part in TYPES)
    count = max((len(operand.items) for operand in one.operands if isinstance(operand, Vector)), default=1)
    return min(16, kind.size * count)
