"""Compiles a lowered graph to machine code, packed weights and a memory plan. Shows the target's stages in order."""

from __future__ import annotations

from collections.abc import Callable

from jitdelegate.base.targets import EXACT, LEVELS
from jitdelegate.ir.dequantize import unload_constants
from jitdelegate.ir.faults import Faults
from jitdelegate.ir.graph import Graph
from jitdelegate.passes.sum_rows import sum_rows
from jitdelegate.program.known_constants import NO_CONSTANTS
from jitdelegate.program.program import Kernel
from jitdelegate.runtime.cpu.profile import stamp_bytes
from jitdelegate.runtime.memory import CLOCK_ENTRY
from jitdelegate.targets.cpu.accepts import ACCEPTS
from jitdelegate.targets.cpu.code.kernel import ALIGN, Generator, Step, place_constants
from jitdelegate.targets.cpu.code.machine import assembly, compile_again, compile_object, is_assembled, triple
from jitdelegate.targets.cpu.code.tasks import Copy, Plan, plan_text
from jitdelegate.targets.cpu.code.vector_ir import Module
from jitdelegate.targets.cpu.code.writer import Writer
from jitdelegate.targets.cpu.entry.architecture import architecture_of
from jitdelegate.targets.cpu.entry.divide import divide
from jitdelegate.targets.cpu.entry.host_entry import write_host_entry
from jitdelegate.targets.cpu.entry.link import link
from jitdelegate.targets.cpu.entry.schedule import shared_steps, sync_bytes, write_entries
from jitdelegate.targets.cpu.entry.stamps import Stamps
from jitdelegate.targets.cpu.forms.halo import halo_jobs
from jitdelegate.targets.cpu.forms.map import copy_jobs
from jitdelegate.targets.cpu.plan import plan
from jitdelegate.targets.cpu.unsigned import store_unsigned
from jitdelegate.targets.planning.choose_layout import choose_layout
from jitdelegate.targets.planning.constants import Constants
from jitdelegate.targets.target import Generated, Trace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jitdelegate.program.known_constants import Known


ENTRIES = ("run", "work", "stop", "invoke")


def _ignore(stage: str, make: Callable[[], str]) -> None:
    """No trace."""


def generate(
    graph: Graph,
    features: str,
    trace: Trace = _ignore,
    *,
    profile: bool = False,
    saves_memory: bool = False,
    precision: str = EXACT,
    known: Known = NO_CONSTANTS,
) -> Generated:
    """Code for one lowered graph and one instruction set; equal graphs give equal bytes.

    Args:
        graph: a graph whose nodes all carry a form.
        features: a key of `LEVELS`.
        trace: called with the plan of steps and memory, the LLVM IR and the machine code.
        profile: whether the code writes time stamps for `runtime.cpu.profile`.
        saves_memory: whether weights are stored as they are even where larger ones would be faster.
        precision: EXACT, BFLOAT16 or FLOAT16.
        known: constants that other programs store.
    Raises:
        CompileError: the code would take too long to compile.
    """
    machine = LEVELS[features].computing_in(precision)
    graph = sum_rows(graph) if any(getattr(node.form, "filter_zero", 0) for node in graph.nodes) else graph
    graph = store_unsigned(graph) if machine.byte_data == "uint8" else graph
    layouts = choose_layout(graph, machine.lanes)
    planned = plan(graph, layouts)
    trace("plan", lambda: plan_text(planned))
    status = -(-planned.arena_bytes // ALIGN) * ALIGN
    constants = Constants(ALIGN, known)
    generator = Generator(machine, Module(machine), constants, saves_memory=saves_memory, status=status)
    write_steps(generator, planned)
    generator.weights.close(ALIGN)
    steps = place_constants(generator.steps, generator.weights.large, len(graph.inputs) + len(graph.outputs))
    has_sync = profile or bool(shared_steps(steps, has_threads=machine.has_threads))
    own_sync_bytes = sync_bytes(len(steps)) if has_sync else 0
    architecture = architecture_of(triple(features), is_assembled=is_assembled(features))
    stamps = Stamps(architecture, len(steps), own_sync_bytes) if profile else None
    refusals = tuple(generator.refusals.sentences)
    write_entries(
        generator.module,
        steps,
        architecture=architecture,
        has_threads=machine.has_threads,
        stamps=stamps,
        status=status if refusals else None,
    )
    write_host_entry(generator.module, may_refuse=bool(refusals))
    ir = generator.module.text(triple(features))
    trace("kernels", lambda: ir)
    trace("assembly", lambda: assembly(ir, features))
    code, entries = _machine_code(ir, features, (*ENTRIES, CLOCK_ENTRY) if profile else ENTRIES)
    return Generated(
        code=code,
        loader="flat" if machine.has_threads else "object",
        entries=entries,
        **generator.weights.of_program(),
        arena_bytes=status + ALIGN if refusals else planned.arena_bytes,
        scratch_bytes=generator.scratch,
        sync_bytes=own_sync_bytes + (stamp_bytes(len(steps)) if profile else 0),
        kernels=tuple(Kernel(name=step.jobs[0].function, form=step.form, chunks=step.chunks) for step in steps),
        origins=tuple(step.origin for step in steps),
        refusals=refusals,
    )


def write_steps(generator: Generator, plan: Plan) -> None:
    """Adds one step per task to the generator. A step also fills the halo of the tensor that it writes, or is the first
    to write a part of.

    Raises:
        CompileError: forms have no kernel, or their writers fail; has the reasons of all.
    """
    writer, filled, faults = Writer(generator, plan), set[int](), Faults()
    for task in plan.tasks:
        generator.places.clear()
        with faults.of(task.origin):
            if isinstance(task, Copy):
                jobs = copy_jobs(generator, writer.memory(task.source), writer.memory(task.target), task.shape)
            else:
                jobs = ACCEPTS.write(task, writer)
            index = task.writes()
            whole = plan.parts.of[index].whole if index in plan.parts.of else index
            halo = [] if whole in filled else halo_jobs(generator, plan.memories[whole])
            filled.add(whole)
            form = "+".join(type(node.form).__name__ for node in task.nodes) or "Copy"
            generator.steps.append(Step(form, [*map(generator.located, jobs), *halo], task.origin))
            unload_constants(plan.graph.tensors[index] for index in task.reads() if index >= 0)
    faults.settle()


def _machine_code(ir: str, features: str, names: tuple[str, ...]) -> tuple[bytes, tuple[tuple[str, int], ...]]:
    if not LEVELS[features].has_threads:
        return compile_object(ir, features), tuple((name, 0) for name in names)
    others, functions = divide(ir)
    apart = {name: compile_again(function, features) for name, function in functions.items()}
    blob, exports = link(compile_object(others, features), apart)
    return blob, tuple((name, exports[name]) for name in names)
