"""Turns a lowered graph into cubins, launches, weights and a memory plan: the entry point of the CUDA target."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from jitdelegate.errors import DeviceError
from jitdelegate.ir.graph import Graph
from jitdelegate.program import program
from jitdelegate.program.known_constants import NO_CONSTANTS
from jitdelegate.program.read import read
from jitdelegate.program.write import write
from jitdelegate.runtime.cache.directory import CacheDirectory
from jitdelegate.runtime.cache.tuned import tuned_digest
from jitdelegate.targets.cuda.code.choices import Choices
from jitdelegate.targets.cuda.code.gpu import Gpu, gpu_of
from jitdelegate.targets.cuda.code.tables import shipped
from jitdelegate.targets.cuda.code.template import (
    Argument,
    Launch,
    NoPointer,
    StatusPointer,
    Template,
    TensorPointer,
    WeightsPointer,
)
from jitdelegate.targets.cuda.compile.compile_templates import Compiled, compile_templates
from jitdelegate.targets.cuda.compile.template_store import TemplateStore
from jitdelegate.targets.cuda.plan.branches import Order
from jitdelegate.targets.cuda.plan.plan import Plan, plan, plan_text
from jitdelegate.targets.target import Generated, Trace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jitdelegate.program.known_constants import Known
    from jitdelegate.targets.cuda.tuning import Tuning


def generate(
    graph: Graph,
    kind: str,
    precision: str,
    directory: CacheDirectory | None,
    trace: Trace,
    tuning: Tuning | None,
    known: Known = NO_CONSTANTS,
) -> Generated:
    """Code for one lowered graph and one kind of GPU; equal graphs and tables give equal bytes.

    Args:
        graph: every node carries a form.
        kind: "sm_90:132", or "sm_90" for the most common GPU of this architecture.
        precision: "float32", "tf32", "float16" or "bfloat16".
        directory: where the templates' lowered code and the user's tables of tuned kernels are; None for no cache.
        trace: called with the plan of launches and memory, and the PTX.
        tuning: how to measure what the tables lack; None takes the package's own table as it is.
        known: constants that other programs store.
    Raises:
        CompileError: the graph is too large, or writers or compilers of kernels fail; has the reasons of all operators.
        DeviceError: the GPU is not supported, lacks what the precision needs, or numba-cuda is not installed.
    """
    gpu = gpu_of(kind)
    if precision in ("tf32", "bfloat16") and not gpu.has_async_copy:
        raise DeviceError(f"precision is {precision!r}, but {gpu.architecture} has only 'float32' and 'float16'")
    if precision == "float16" and not gpu.has_mma:
        raise DeviceError(f"precision is {precision!r}, but {gpu.architecture} has only 'float32'")
    store = TemplateStore(directory)
    choices = Choices(shipped(gpu))
    if tuning is not None:
        choices = tuning.choices(graph, gpu, precision, directory, Builder(gpu, store), trace)
    planned = plan(graph, gpu, precision, choices, known)
    trace("plan", lambda: plan_text(planned))
    origins = {template: _origin(template, planned.launches) for template in planned.templates}
    compiled = compile_templates(planned.templates, gpu.architecture, store, origins)
    trace("kernels", lambda: "\n".join(one.ptx.decode() for one in compiled))
    used = tuned_digest(choices.used()) if tuning else ""
    return generated(planned, compiled, graph.inputs, graph.outputs, used)


@dataclass(slots=True)
class Builder:
    """Makes programs of plans that no caller has inputs for; templates that they share are compiled once."""

    gpu: Gpu
    store: TemplateStore
    _compiled: dict[Template, Compiled] = field(default_factory=dict)

    def __call__(self, plans: Sequence[Plan]) -> list[program.Program]:
        wanted = dict.fromkeys(template for planned in plans for template in planned.templates)
        new = [template for template in wanted if template not in self._compiled]
        self._compiled.update(zip(new, compile_templates(new, self.gpu.architecture, self.store), strict=True))
        return [self._program(generated(one, [self._compiled[key] for key in one.templates])) for one in plans]

    def _program(self, made: Generated) -> program.Program:
        key = ("model", "0" * 32), ("target", "cuda")
        whole = program.Program(key=key, target="cuda", features=self.gpu.architecture, **made.of_program())
        return read(write(whole))


def generated(
    planned: Plan,
    compiled: Sequence[Compiled],
    inputs: Sequence[int] = (),
    outputs: Sequence[int] = (),
    tuned: str = "",
) -> Generated:
    """A plan with its compiled templates as the parts of a program, which has these inputs and outputs."""
    numbers = {template: number for number, template in enumerate(planned.templates)}
    (code, entries), writer = _code(compiled), planned.writer
    return Generated(
        loader="cubin",
        code=code,
        entries=entries,
        kernels=tuple(_kernel(one, planned.launches) for one in compiled),
        launches=tuple(
            _launch(planned, launch, order, numbers[launch.template])
            for launch, order in zip(planned.launches, planned.orders, strict=True)
        ),
        origins=tuple(_origin(template, planned.launches) for template in numbers),
        **writer.weights.of_program(),
        arena_bytes=planned.arena_bytes,
        input_offsets=tuple(planned.offset(index) for index in inputs),
        output_offsets=tuple(planned.offset(index) for index in outputs),
        refusals=tuple(writer.refusals.sentences),
        tuned=tuned,
    )


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


def _launch(planned: Plan, launch: Launch, order: Order, kernel: int) -> program.Launch:
    # which of the inputs a launch writes, programs tell by the first tensor
    written = [planned.buffers[index] for index, writes in launch.accesses() if writes]
    inputs = (planned.buffers[index] for index in planned.writer.graph.inputs)
    assert {*written[1:]}.isdisjoint({*inputs} - {written[0]}), launch.template.family
    kinds, values = zip(*(_argument(planned, argument) for argument in launch.arguments), strict=True)
    return program.Launch(
        kernel=kernel,
        grid=launch.grid,
        block=(launch.template.threads, 1, 1),
        shared_bytes=launch.shared_bytes,
        kinds="".join(kinds),
        values=values,
        stream=order.stream,
        waits=order.waits,
        is_dependent=order.is_dependent,
    )


def _argument(planned: Plan, argument: Argument) -> tuple[str, int]:
    """The letter and value of an argument in a program."""
    if isinstance(argument, TensorPointer):
        return "p" if planned.buffers[argument.index] in planned.ports else "a", planned.offset(argument.index)
    if isinstance(argument, WeightsPointer):
        return "w", argument.offset
    if isinstance(argument, NoPointer):
        return "a", 0
    if isinstance(argument, StatusPointer):
        return "s", 0
    if isinstance(argument, float):
        return "f", int(struct.unpack("<I", struct.pack("<f", argument))[0])
    return "i", int(argument)
