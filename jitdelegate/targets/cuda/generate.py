"""Turns a lowered graph into cubins, launches, weights and a memory plan: the entry point of the CUDA target."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jitdelegate.cache.place import Place
from jitdelegate.errors import DeviceError
from jitdelegate.ir.graph import Graph
from jitdelegate.program import program
from jitdelegate.targets.cuda.compile_templates import Compiled, compile_templates
from jitdelegate.targets.cuda.gpu import Gpu, gpu_of
from jitdelegate.targets.cuda.plan import Plan, plan, plan_text
from jitdelegate.targets.cuda.template import Argument, Launch, NoPointer, TensorPointer, WeightsPointer
from jitdelegate.targets.cuda.template_store import TemplateStore

Trace = Callable[[str, Callable[[], str]], None]
"""Called with a stage's name and a function that makes the stage's text."""


def _ignore(stage: str, make: Callable[[], str]) -> None:
    """Traces nothing."""


@dataclass(frozen=True, slots=True)
class Generated:
    """The parts of a compiled graph that go to the program file.

    Attributes:
        code: cubins one after another; entries: (kernel, offset in `code`).
        kernels: one per distinct template, in the order of `entries`; launches refer to them.
        origins: per kernel, the .tflite operators that it computes.
        input_offsets, output_offsets: offsets of the graph's inputs and outputs, in bytes, as in `Program`.
        compiled: the kernels with their PTX, for tools and tests; not part of the program.
    """

    code: bytes
    entries: tuple[tuple[str, int], ...]
    kernels: tuple[program.Kernel, ...]
    launches: tuple[program.Launch, ...]
    origins: tuple[tuple[int, ...], ...]
    weights: bytearray
    large_constants: tuple[int, ...]
    arena_bytes: int
    input_offsets: tuple[int, ...]
    output_offsets: tuple[int, ...]
    compiled: tuple[Compiled, ...]


def generate(
    graph: Graph, kind: str, precision: str = "float32", place: Place | None = None, trace: Trace = _ignore
) -> Generated:
    """Code for one lowered graph and one kind of GPU; equal graphs give equal bytes.

    Args:
        graph: every node carries a form.
        kind: "sm_90:132", or "sm_90" for the most common GPU of this architecture.
        precision: "float32", "tf32", "float16" or "bfloat16".
        place: where the templates' IR is cached; None for no cache.
        trace: called with the plan of launches and memory, and the PTX.
    Raises:
        CompileError: the graph is too large, or a compiler refuses a kernel.
        DeviceError: the GPU is not supported, lacks what the precision needs, or numba-cuda is not installed.
    """
    gpu = _gpu(kind, precision)
    planned = plan(graph, gpu, precision)
    trace("plan", lambda: plan_text(planned))
    templates = list(dict.fromkeys(launch.template for launch in planned.launches))
    compiled = compile_templates(templates, gpu.architecture, TemplateStore(place))
    trace("kernels", lambda: "\n".join(one.ptx.decode() for one in compiled))
    numbers = {template: number for number, template in enumerate(templates)}
    code, entries = _code(compiled)
    return Generated(
        code=code,
        entries=entries,
        kernels=tuple(_kernel(one, planned.launches) for one in compiled),
        launches=tuple(_launch(planned, launch, numbers[launch.template]) for launch in planned.launches),
        origins=tuple(_origin(template, planned.launches) for template in templates),
        weights=planned.weights,
        large_constants=planned.large_constants,
        arena_bytes=planned.arena_bytes,
        input_offsets=tuple(planned.offset(index) for index in graph.inputs),
        output_offsets=tuple(planned.offset(index) for index in graph.outputs),
        compiled=tuple(compiled),
    )


def _gpu(kind: str, precision: str) -> Gpu:
    gpu = gpu_of(kind)
    if precision in ("tf32", "bfloat16") and not gpu.has_async_copy:
        raise DeviceError(f"precision is {precision!r}, but {gpu.architecture} has only 'float32' and 'float16'")
    return gpu


def _code(compiled: Sequence[Compiled]) -> tuple[bytes, tuple[tuple[str, int], ...]]:
    code, entries = bytearray(), []
    for one in compiled:
        code.extend(bytes(-len(code) % program.CUBIN_ALIGNMENT))
        entries.append((one.template.symbol, len(code)))
        code.extend(one.cubin.image)
    return bytes(code), tuple(entries)


def _kernel(compiled: Compiled, launches: Sequence[Launch]) -> program.Kernel:
    template, cubin = compiled.template, compiled.cubin
    own = [launch for launch in launches if launch.template == template]
    return program.Kernel(
        name=template.symbol,
        form=", ".join(dict.fromkeys(launch.form for launch in own)),
        chunks=len(own),
        threads=template.threads,
        registers=cubin.registers,
        spill_bytes=cubin.spill_bytes,
        stack_bytes=cubin.stack_bytes,
        shared_bytes=cubin.shared_bytes,
    )


def _origin(template: object, launches: Sequence[Launch]) -> tuple[int, ...]:
    own = (launch.origin for launch in launches if launch.template == template)
    return tuple(dict.fromkeys(position for origin in own for position in origin))


def _launch(planned: Plan, launch: Launch, kernel: int) -> program.Launch:
    kinds, values = zip(*(_argument(planned, argument) for argument in launch.arguments), strict=True)
    return program.Launch(
        kernel=kernel,
        grid=launch.grid,
        block=(launch.template.threads, 1, 1),
        shared_bytes=launch.shared_bytes,
        kinds="".join(kinds),
        values=values,
    )


def _argument(planned: Plan, argument: Argument) -> tuple[str, int]:
    """The letter and value of an argument in a program."""
    if isinstance(argument, TensorPointer):
        return "p" if planned.is_port(argument.index) else "a", planned.offset(argument.index)
    if isinstance(argument, WeightsPointer):
        return "w", argument.offset
    if isinstance(argument, NoPointer):
        return "a", 0
    if isinstance(argument, float):
        return "f", int(struct.unpack("<I", struct.pack("<f", argument))[0])
    return "i", int(argument)
