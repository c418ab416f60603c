"""A model as a delegate client: LiteRT's interpreter runs it, and calls its compiled partitions."""

from __future__ import annotations

import _thread
import ctypes

from jitdelegate.engine.executable import MOST_SHAPES
from jitdelegate.engine.litert_delegate.delegate_client import DelegateClient, DelegateKernel, Facts
from jitdelegate.engine.litert_delegate.native_delegate import NativeDelegate
from jitdelegate.engine.litert_delegate.trust import refusal
from jitdelegate.engine.named_shapes import named_shapes
from jitdelegate.errors import (
    CompileError,
    DelegationError,
    DeviceError,
    JitDelegateError,
    ProgramError,
    ShapesError,
    shortened,
)
from jitdelegate.program.read import read
from jitdelegate.runtime.cache.key import variant_parts
from jitdelegate.runtime.cpu.session import Session
from jitdelegate.runtime.litert_layout import LAYOUT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from jitdelegate.engine.executable import Executable
    from jitdelegate.engine.model_file import ModelFile
    from jitdelegate.engine.named_shapes import NamedShapes
    from jitdelegate.program.program import Partition, Port, Program, State
    from jitdelegate.runtime.cache.key import Parts, Shapes
    from jitdelegate.runtime.fallback import Fallback
    from jitdelegate.runtime.io_binding import IOBinding

    Specialize = Callable[[Executable, Parts], Executable]
    Recompile = Callable[[Executable, IOBinding | None, Exception], None]

NO_MEMORY = "there is no memory for it"


class HostedModel(DelegateClient):
    """The programs of one model in one interpreter of LiteRT, opened when it asks for them.

    Attributes:
        main: the program of the first subgraph for the file's shapes.
    """

    def __init__(self, main: Executable, specialize: Specialize, recompile: Recompile) -> None:
        """
        Args:
            main: as the attribute; must not refer to the interpreter, which would keep itself alive.
            specialize, recompile: functions of `load_path`, which imports this module.
        """
        self._specialize = specialize
        self._recompile = recompile
        self._source = main.source
        self.main = main
        self._opened: dict[tuple[int, Shapes, tuple[int, ...]], Executable] = {(0, (), ()): self.main}
        """By subgraph, shapes and nodes, in the order of their last use."""
        self._idle = {subgraph.number: subgraph for subgraph in self.main.program.idle}
        self._ready = main
        self._lock = _thread.RLock()  # a listener that is called while a program is opened may ask for the report
        self.num_subgraphs = self.main.program.num_subgraphs

    def prepare(self, shapes: Sequence[NamedShapes] = ()) -> None:
        """Fetch the programs of all subgraphs for the file's shapes, and of those with inputs of these names for these
        sizes; raises the errors of `specialize` and `named_shapes`."""
        opened = {number: self._open(number) for number in range(self.num_subgraphs) if number not in self._idle}
        programs = {number: executable.program for number, executable in opened.items()}
        for given in shapes:
            for subgraph, sizes in named_shapes(programs, given).items():
                if sizes != opened[subgraph].shapes:
                    self._open(subgraph, sizes)

    def executables(self) -> list[Executable]:
        """Per subgraph, the program for the shapes at the last allocation; the first subgraph comes first."""
        with self._lock:
            further = {key: executable for key, executable in self._opened.items() if key[0] and not key[2]}
        latest = {key[0]: executable for key, executable in further.items()}  # the shapes that came last
        return [self._ready, *(latest[number] for number in sorted(latest))]

    @property
    def further(self) -> list[Executable]:
        """The kept programs for other shapes than the file's."""
        with self._lock:
            return [executable for (_, shapes, nodes), executable in self._opened.items() if shapes and not nodes]

    def delegate(self) -> NativeDelegate:
        """A delegate for one interpreter; raises the errors of `NativeDelegate`."""
        return NativeDelegate(self, directory=self._source.store.machine_notes)

    def introduce(self) -> None:
        """Announce the operators on LiteRT now: later, errors reach the user through LiteRT only.

        Raises:
            DelegationError: full delegation was required, and some operators cannot be delegated.
        """
        trouble = refusal(self._source.store.machine_notes)
        if trouble and self._source.options.require_full_delegation:
            raise DelegationError(f"full delegation was required of {self._source.name}: {trouble}")
        if trouble:
            return  # the delegate will do nothing and warn
        for subgraph in range(self.num_subgraphs):
            if subgraph not in self._idle:
                executable = self._open(subgraph)
                if self._source.options.require_full_delegation:
                    executable.require_full_delegation()
                executable.announce()

    def facts(self, subgraph: int) -> Facts:
        idle = self._idle.get(subgraph)
        if idle is not None:
            return Facts(idle.num_tensors, idle.num_nodes, _facts(idle.ports), codes=list(enumerate(idle.codes)))
        program = self._open(subgraph).program
        ports = [*program.inputs, *program.outputs, *program.between]
        codes = (
            [(operator.index, operator.code) for operator in program.operators] if subgraph else ()
        )  # only the first is sure
        return Facts(program.num_tensors, program.num_nodes, _facts(ports), codes=codes)

    def partitions(self, subgraph: int) -> Sequence[tuple[int, ...]]:
        if subgraph in self._idle:
            return ()
        executable = self._open(subgraph)
        if self._source.options.require_full_delegation:
            executable.require_full_delegation()
        return [partition.nodes for partition in executable.program.partitions]

    def kernel(
        self, subgraph: int, nodes: tuple[int, ...], shapes: Mapping[int, tuple[int, ...]], context: int
    ) -> DelegateKernel:
        """The partition of these nodes, compiled for these shapes; else LiteRT on a model of these nodes.

        So a shape that cannot be compiled is no error, unless full delegation is required."""
        try:
            return self._compiled(subgraph, nodes, shapes, context)
        except ShapesError:
            raise  # LiteRT's kernels do not take them either
        except (_UnknownError, CompileError, DeviceError, MemoryError) as error:
            reason = str(error) or NO_MEMORY
        if self._source.options.require_full_delegation:
            raise DelegationError(f"full delegation was required of {self._source.name}: {reason}")
        self.main.note(f"on LiteRT, {len(nodes)} delegated operators of subgraph {subgraph}: {reason}")
        try:
            return _LiteRTKernel(self._source, subgraph, nodes, shapes)
        except MemoryError as error:
            raise DeviceError(NO_MEMORY) from error

    def _open(self, subgraph: int, shapes: Shapes = (), nodes: tuple[int, ...] = ()) -> Executable:
        key = subgraph, shapes, nodes
        with self._lock:
            executable = self._opened.pop(key, None)
            is_new = executable is None
            if executable is None:
                executable = self._specialize(self.main, variant_parts(subgraph, shapes, hosted=True, nodes=nodes))
            self._opened[key] = executable
            if is_new:
                self._let_go(subgraph)
                if executable.failure:
                    executable.announce()
            return executable

    def _let_go(self, subgraph: int) -> None:
        """Keep the programs of a subgraph for the last few shapes. Kernels that LiteRT has go on with theirs."""
        used = dict.fromkeys(shapes for number, shapes, _ in reversed(self._opened) if number == subgraph and shapes)
        left = set([*used][MOST_SHAPES:])
        for key in [key for key in self._opened if key[0] == subgraph and key[1] in left]:
            del self._opened[key]

    def _compiled(
        self, subgraph: int, nodes: tuple[int, ...], shapes: Mapping[int, tuple[int, ...]], context: int
    ) -> DelegateKernel:
        executable = self._open(subgraph)
        wanted = tuple(shapes[port.index] for port in executable.program.inputs)
        if wanted != executable.shapes:
            executable = self._open(subgraph, wanted)
        if subgraph == 0:
            self._ready = executable
        if _partition(executable.program, nodes) is None:  # not compiled, or grouped differently by LiteRT
            executable = self._open(subgraph, executable.resized, nodes)
        try:
            return _kernel(executable, nodes, shapes, context)
        except ProgramError as error:
            self._recompile(executable, None, error)
            return _kernel(executable, nodes, shapes, context)


def _facts(ports: Sequence[Port]) -> tuple[tuple[int, str, str], ...]:
    return tuple({port.index: (port.index, port.name, port.dtype) for port in ports}.values())


class _UnknownError(JitDelegateError):
    """LiteRT asks for a partition that the program lacks."""


def _kernel(
    executable: Executable, nodes: tuple[int, ...], shapes: Mapping[int, tuple[int, ...]], context: int
) -> DelegateKernel:
    program = _partition_program(executable.program, nodes)
    known: tuple[Port | State, ...] = (*program.inputs, *program.states)
    for port in known:
        found, expected = _shape_of(port, shapes), port.shape
        if found != expected:
            name = shortened(port.name)
            raise _UnknownError(f"'{name}' has the shape {list(found)}, and the program is for {list(expected)}.")
    if context not in executable.workspaces:
        executable.workspaces[context] = executable.workspace()
    session = executable.open(program, executable.workspaces[context])
    if executable.source.options.profile:
        executable.hosted_sessions[nodes] = session
    return _CompiledKernel(program, session)


def _shape_of(port: Port | State, shapes: Mapping[int, tuple[int, ...]]) -> tuple[int, ...]:
    try:
        return shapes[port.index]
    except KeyError:
        raise ProgramError(f"a partition has the tensor {port.index}, which LiteRT lacks") from None


def _partition(program: Program, nodes: tuple[int, ...]) -> Partition | None:
    """The compiled partition of exactly these operators."""
    return next((partition for partition in program.partitions if partition.nodes == nodes and partition.nbytes), None)


def _partition_program(program: Program, nodes: tuple[int, ...]) -> Program:
    partition = _partition(program, nodes)
    if partition is None:
        reason = next((one.reason for one in program.operators if one.index in nodes and one.reason), "")
        raise _UnknownError(reason or "they are not compiled as one partition.")
    compiled = read(program.content(partition))
    if (_indices(compiled.inputs), _indices(compiled.outputs)) != (partition.inputs, partition.outputs):
        raise ProgramError(f"a partition has other tensors than {partition.inputs} and {partition.outputs}")
    return compiled


def _data_offset(index: int) -> int:
    """Offset in bytes of a tensor's data pointer in LiteRT's array of tensors."""
    return index * LAYOUT.tensor.size + LAYOUT.tensor["data"]


class _CompiledKernel(DelegateKernel):
    """A compiled partition; on the CPU no Python runs it, unless there is no memory for private weights."""

    def __init__(self, program: Program, session: IOBinding) -> None:
        self.inputs, self.outputs = (_indices(ports) for ports in (program.inputs, program.outputs))
        self.output_shapes = tuple(port.shape for port in program.outputs)
        self._session = session
        if isinstance(session, Session):
            self._begin_without_python(session, program)

    def _begin_without_python(self, session: Session, program: Program) -> None:
        try:
            self.entry, self._words = session.host(_data_offset)
        except DeviceError:
            if program.states:  # they are LiteRT's
                raise
            return  # runs look whether the file has changed
        self.arguments = ctypes.addressof(self._words)

    def run(self, addresses: list[int]) -> None:
        self._session.run_on(addresses)

    def close(self) -> None:
        self._session.close()


def _indices(ports: Sequence[Port]) -> tuple[int, ...]:
    return tuple(port.index for port in ports)


class _LiteRTKernel(DelegateKernel):
    """Delegated nodes without compiled code, run by LiteRT as a model of their own."""

    def __init__(
        self, source: ModelFile, subgraph: int, nodes: tuple[int, ...], shapes: Mapping[int, tuple[int, ...]]
    ) -> None:
        from jitdelegate.compiler.partitioned import cut_nodes  # not before: compiled partitions need no compiler
        from jitdelegate.runtime.fallback import Fallback

        cut = cut_nodes(source.content(), subgraph, nodes, shapes)
        self.inputs = (*cut.inputs, *(index for index, _ in cut.variables))
        self.outputs = cut.outputs
        self._variables = [own for _, own in cut.variables]
        self._fallback: Fallback | None = Fallback(cut.content, num_threads=source.threads)
        self._fallback.allocate()
        self.output_shapes = tuple(
            tuple(detail["shape"].tolist()) for detail in self._fallback.interpreter.get_output_details()
        )

    def run(self, addresses: list[int]) -> None:
        """Compute on copies of the tensors, without XNNPACK if only that fails."""
        assert self._fallback is not None
        try:
            self._calculate(self._fallback, addresses)
        except RuntimeError as error:
            self._fallback.recover(error)
            self._calculate(self._fallback, addresses)

    def _calculate(self, fallback: Fallback, addresses: list[int]) -> None:
        """Copy inputs and variables in, run, copy outputs and variables out: the whole model owns their memory."""
        interpreter = fallback.interpreter
        every = interpreter.get_tensor_details() if self._variables else []
        variables = [every[index] for index in self._variables]
        given = [*interpreter.get_input_details(), *variables]
        for detail, address in zip(given, addresses, strict=False):
            interpreter.set_tensor(detail["index"], _array_at(address, detail))
        interpreter.invoke()
        made = [*variables, *interpreter.get_output_details()]
        for detail, address in zip(made, addresses[len(given) - len(variables) :], strict=True):
            if detail["shape"].all():
                content = interpreter.get_tensor(detail["index"]).tobytes()
                ctypes.memmove(address, content, len(content))

    def close(self) -> None:
        self._fallback = None


def _array_at(address: int, detail: Mapping[str, Any]) -> Any:
    """A copy of a tensor's elements, as LiteRT's methods accept it; tensors of shape () have no views."""
    import numpy

    count = int(numpy.prod(detail["shape"]))
    content = ctypes.string_at(address, count * numpy.dtype(detail["dtype"]).itemsize) if count else b""
    return numpy.frombuffer(content, detail["dtype"]).reshape(detail["shape"])
