"""Kernels for peak rates and costs: an empty one, ones that only multiply and add, and ones that only exchange sums.

They are compiled where bundles are prepared; `ceilings.py` measures them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from jitdelegate.program.program import CUBIN_ALIGNMENT, Kernel, Launch, Program
from jitdelegate.program.write import write
from jitdelegate.runtime.cache.key import KeyParts, model_key, this_cpu
from jitdelegate.targets.cuda.code.device_code import F32, Code, Value, reduce_tree
from jitdelegate.targets.cuda.code.gpu import gpu_of
from jitdelegate.targets.cuda.code.sizes import Kind
from jitdelegate.targets.cuda.code.template import Template
from jitdelegate.targets.cuda.compile.compile_templates import compile_templates
from jitdelegate.targets.cuda.compile.template_store import TemplateStore
from jitdelegate.targets.cuda.multiply.tensor_core import Operand, multiply
from scripts.gpu_check.ceilings import (
    BLOCKS_EACH,
    CLUSTER,
    ITERATIONS,
    MEETING_THREADS,
    MEETING_TURNS,
    PRODUCTS,
    ROUNDS,
    SUMS,
    THREADS,
)

ARENA_BYTES = 256


@dataclass(frozen=True, eq=False)
class Nothing(Template):
    """A kernel that does nothing."""

    family: ClassVar[str] = "nothing"

    @property
    def threads(self) -> int:
        return 32

    @property
    def parameters(self) -> tuple[Kind, ...]:
        return ("pointer",)

    def write(self, code: Code, output: Value) -> None:
        """Nothing."""


@dataclass(frozen=True, eq=False)
class Products(Template):
    """Products that are added to SUMS sums, over and over; they do not wait for each other.

    Attributes:
        operand: what tensor cores multiply; None for float32 multiply-adds without them.
    """

    family: ClassVar[str] = "products"
    operand: Operand | None

    @property
    def threads(self) -> int:
        return THREADS

    @property
    def uses_tensor_cores(self) -> bool:
        return self.operand is not None

    @property
    def parameters(self) -> tuple[Kind, ...]:
        return "pointer", "int32"

    def write(self, code: Code, output: Value, count: Value) -> None:
        thread = code.special("tid.x")
        factor = code.to_float(thread)
        start = [factor + place for place in range(SUMS)]
        with code.carried(count, start) as (_, sums, following):
            for _ in range(ROUNDS):
                sums = self._added(code, factor, thread, sums)
            following[:] = sums
        total: Any = following[0]
        for value in following[1:]:
            total = total + value
        with code.when(total.equals(-1.0)):  # never, which nobody knows but us
            code.store([total], output, 0)

    def _added(self, code: Code, factor: Value, bits: Value, sums: list[Value]) -> list[Value]:
        if self.operand is None:
            return [code.fma(value, factor, factor) for value in sums]
        fours = [sums[at : at + 4] for at in range(0, SUMS, 4)]
        added = [multiply(code, self.operand, [bits] * 4, [bits] * 2, four, whole_steps=True) for four in fours]
        return [value for four in added for value in four]


@dataclass(frozen=True, eq=False)
class Meetings(Template):
    """Blocks of a cluster that add up sums again and again, as those do that share out K."""

    family: ClassVar[str] = "meetings"
    threads: ClassVar[int] = MEETING_THREADS
    cluster: ClassVar[int] = CLUSTER

    @property
    def parameters(self) -> tuple[Kind, ...]:
        return "pointer", "int32"

    def write(self, code: Code, output: Value, count: Value) -> None:
        start = code.static_shared(4 * CLUSTER * MEETING_THREADS, "sums")
        address = start + code.special("tid.x") * 4
        with code.carried(count, [code.to_float(code.special("tid.x"))]) as (_, (total,), following):
            following[:] = [self._met(code, address, total)]
        with code.when(following[0].equals(-1.0)):  # never, which nobody knows but us
            code.store(following, output, 0)

    def _met(self, code: Code, address: Value, total: Value) -> Value:
        code.store([total], address, 0)
        code.cluster_barrier()
        sums = [code.load_remote(code.of_block(address, rank), F32, 1)[0] for rank in range(CLUSTER)]
        code.cluster_barrier()
        return reduce_tree(sums, lambda a, b: a + b)


@dataclass(frozen=True, eq=False)
class Exchanges(Meetings):
    """Blocks of a cluster that store values in all of them, as those do that share out the units of a cell."""

    family: ClassVar[str] = "exchanges"

    def _met(self, code: Code, address: Value, total: Value) -> Value:
        own = address + code.special("ctaid.z") * (4 * MEETING_THREADS)
        for rank in range(CLUSTER):
            code.store_remote(total, code.of_block(own, rank))
        code.cluster_barrier()
        return total + 1.0


def ceilings_program(kind: str) -> bytes:
    """A program whose launches are a `Nothing`, in the order of PRODUCTS `Products`, and what only clusters do."""
    gpu = gpu_of(kind)
    operands = [None if precision == "float32" else Operand(precision) for precision in PRODUCTS]
    usable = [operand for operand in operands if operand is None or gpu.has_async_copy]
    meetings: list[Template] = [Meetings(), Exchanges()] if gpu.has_clusters else []
    templates: list[Template] = [Nothing(), *map(Products, usable), *meetings]
    compiled = compile_templates(templates, gpu.architecture, TemplateStore(None))
    code, entries = bytearray(), []
    for one in compiled:
        code.extend(bytes(-len(code) % CUBIN_ALIGNMENT))
        entries.append((one.template.symbol, len(code)))
        code.extend(one.cubin.image)
    whole = BLOCKS_EACH * gpu.multiprocessors
    launches = [Launch(kernel=0, grid=(1, 1, 1), block=(32, 1, 1), kinds="a", values=(0,))]
    launches += [
        Launch(kernel=number, grid=(whole, 1, 1), block=(THREADS, 1, 1), kinds="ai", values=(0, ITERATIONS))
        for number in range(1, 1 + len(usable))
    ]
    block, counts = (MEETING_THREADS, 1, 1), (0, MEETING_TURNS)
    launches += [
        Launch(kernel=number, grid=(1, 1, CLUSTER), block=block, kinds="ai", values=counts)
        for number in range(1 + len(usable), len(templates))
    ]
    key = model_key("ceilings", KeyParts("cuda", gpu.architecture, "cubin", this_cpu(), toolchain=""))
    program = Program(
        key=key.parts,
        target="cuda",
        features=gpu.architecture,
        loader="cubin",
        kernels=tuple(
            Kernel(name=one.template.symbol, form="", chunks=1, threads=one.template.threads) for one in compiled
        ),
        entries=tuple(entries),
        launches=tuple(launches),
        arena_bytes=ARENA_BYTES,
        code=bytes(code),
    )
    return write(program)
