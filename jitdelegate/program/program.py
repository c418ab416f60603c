"""Program and its parts: plain values that the compiler writes and the runtime reads.

Load path: plain classes, since importing dataclasses costs more than opening a program.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    Bytes = bytes | bytearray | memoryview
    FileParts = tuple[Bytes, ...]
    Loans = tuple[tuple[int, int, int, int], ...]
    Made = TypeVar("Made", bound="Record")

NO_KERNEL = -1
NO_TENSOR = -1
NO_PARTITION = -1
LITERT = "litert"
"""Place of an operator or a partition that LiteRT runs, and target of a program without code."""
IN_PARTITIONS = ("partitions", "delegate")
"""Loaders of programs that consist of partitions."""
UNKNOWN_SHAPE = "is known only to LiteRT."
"""End of the reason of an operator that reads what another one on LiteRT writes, in a shape that LiteRT finds out."""
NOTHING_ELSE = "Nothing is compiled that it is needed for."
"""Reason of an operator whose readers are all on LiteRT."""
ITS_PARTITION = "Its partition of "
"""Beginning of the reason of an operator that could be compiled, but with too few others."""
CUSTOM = 32
"""TFLite's number of custom operators."""
MOST_REFUSALS = (1 << 16) - 1
"""Most refusals of a program: their numbers have 16 bits of a status word."""
ZEROS = -1
"""`State.initial` of a state that begins with zeros."""
CUBIN_ALIGNMENT = 64
"""Alignment in bytes of every CUDA binary in the code."""


def general_reason(reason: str) -> str:
    """The reason of an operator without the name of a tensor of unknown shape, so that those of a sequence are one."""
    return f"The shape of what is read {UNKNOWN_SHAPE}" if reason.endswith(UNKNOWN_SHAPE) else reason


class Record:
    """A class whose values are its slots: compared and shown by value."""

    __slots__: tuple[str, ...] = ()

    def contents(self) -> tuple[object, ...]:
        """The values in slot order."""
        return tuple(getattr(self, name.lstrip("_")) for name in self.__slots__)

    def altered(self: Made, **values: object) -> Made:
        """A copy with other values in some slots."""
        return type(self)(**(dict(zip(self.__slots__, self.contents(), strict=True)) | values))

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self.contents() == other.contents()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        pairs = zip(self.__slots__, self.contents(), strict=True)
        shown = ", ".join(f"{name.lstrip('_')}={value!r}" for name, value in pairs)
        return f"{type(self).__name__}({shown})"


class Port(Record):
    """An input or output tensor of the model.

    Attributes:
        name: the tensor's name in the model.
        index: its index among the main subgraph's tensors.
        shape: the sizes that the program was compiled for.
        shape_signature: the model's own sizes, -1 for any size; equal to shape where all are fixed.
        dtype: numpy's name of the element type.
        scales, zero_points, axis: quantization; empty without; several values are per channel of `axis`.
        nbytes: bytes of the dense row-major tensor.
    """

    __slots__ = ("axis", "dtype", "index", "name", "nbytes", "scales", "shape", "shape_signature", "zero_points")

    def __init__(
        self,
        *,
        name: str,
        index: int,
        shape: tuple[int, ...],
        dtype: str,
        nbytes: int,
        shape_signature: tuple[int, ...] | None = None,
        scales: tuple[float, ...] = (),
        zero_points: tuple[int, ...] = (),
        axis: int = 0,
    ) -> None:
        self.name = name
        self.index = index
        self.shape = shape
        self.shape_signature = shape if shape_signature is None else shape_signature
        self.dtype = dtype
        self.scales = scales
        self.zero_points = zero_points
        self.axis = axis
        self.nbytes = nbytes


class State(Record):
    """A value that lives from run to run.

    Attributes:
        name: the variable's name in the model.
        nbytes: its length.
        initial: offset of its first value in the weights, in bytes; ZEROS for zeros.
        is_resource: 1 for a resource variable, which LiteRT's `reset_all_variables` keeps, else 0.
        index: the variable's index among the subgraph's tensors; NO_TENSOR for a resource variable, and for a variable
            of another subgraph.
        shape, dtype: of the tensor.
    """

    __slots__ = ("dtype", "index", "initial", "is_resource", "name", "nbytes", "shape")

    def __init__(
        self,
        *,
        name: str,
        nbytes: int,
        initial: int = ZEROS,
        is_resource: int = 0,
        index: int = NO_TENSOR,
        shape: tuple[int, ...] = (),
        dtype: str = "float32",
    ) -> None:
        self.name = name
        self.nbytes = nbytes
        self.initial = initial
        self.is_resource = is_resource
        self.index = index
        self.shape = shape
        self.dtype = dtype


class Signature(Record):
    """A named way to call the model: argument names with their tensor indices."""

    __slots__ = ("graph", "inputs", "key", "outputs")

    def __init__(
        self, *, key: str, graph: int, inputs: tuple[tuple[str, int], ...], outputs: tuple[tuple[str, int], ...]
    ) -> None:
        self.key = key
        self.graph = graph
        self.inputs = inputs
        self.outputs = outputs


class Operator(Record):
    """One operator of the model: where it runs and why.

    Attributes:
        index: its position in the main subgraph.
        op: TFLite's name.
        place: "cpu", "cuda", "litert", "folded" (evaluated at compile time).
        reason: one sentence why it is not compiled; "" if it is.
        kernel: index of its kernel, -1 for none.
        partition: index of its partition in the program, -1 for none.
        code: TFLite's number of the operator; CUSTOM for custom ones.
        execution: how compiled code computes a quantized operator: "integer", "dynamic" or "float_view", as the option
            `quantized_execution` says; "" for others.
    """

    __slots__ = ("code", "execution", "index", "kernel", "op", "partition", "place", "reason")

    def __init__(
        self,
        *,
        index: int,
        op: str,
        place: str,
        reason: str = "",
        kernel: int = NO_KERNEL,
        partition: int = NO_PARTITION,
        code: int = 0,
        execution: str = "",
    ) -> None:
        self.index = index
        self.op = op
        self.place = place
        self.reason = reason
        self.kernel = kernel
        self.partition = partition
        self.code = code
        self.execution = execution


class Kernel(Record):
    """One generated kernel.

    Attributes:
        name: unique in the program.
        form: name of its kernel form.
        chunks: on the CPU, parts that threads may share; on CUDA, the number of its launches.
        threads: CUDA threads per block.
        registers, stack_bytes, spill_bytes: of one CUDA thread, as the assembler reported.
        shared_bytes: static shared memory of one CUDA block.
    """

    __slots__ = ("chunks", "form", "name", "registers", "shared_bytes", "spill_bytes", "stack_bytes", "threads")

    def __init__(
        self,
        *,
        name: str,
        form: str,
        chunks: int,
        threads: int = 0,
        registers: int = 0,
        spill_bytes: int = 0,
        stack_bytes: int = 0,
        shared_bytes: int = 0,
    ) -> None:
        self.name = name
        self.form = form
        self.chunks = chunks
        self.threads = threads
        self.registers = registers
        self.spill_bytes = spill_bytes
        self.stack_bytes = stack_bytes
        self.shared_bytes = shared_bytes


class Launch(Record):
    """One launch of a CUDA kernel.

    Attributes:
        kernel: its index among the program's entries, which are its kernels in their order.
        grid, block: (x, y, z), in blocks and in threads.
        shared_bytes: dynamic shared memory of one block.
        kinds: one letter per argument: "a" is the arena's address plus the value, "w" the weights' address plus the
            value, "p" the address in the memory of an input or output, which begins at its offset, "i" an int32, "f"
            a float32 given by its bits, "s" the address of the status word, which few runs write. The kernel writes to
            the first one's memory; where it writes to further memory, that is the arena's.
        values: one per letter.
        stream: launches of other streams may run at the same time. Without branches there is only stream 0.
        waits: launches of other streams that have to end before.
        is_dependent: whether it may begin while the launch before it in its stream still runs, for whose end its kernel
            waits; it waits for no other.
    """

    __slots__ = ("block", "grid", "is_dependent", "kernel", "kinds", "shared_bytes", "stream", "values", "waits")

    def __init__(
        self,
        *,
        kernel: int,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        shared_bytes: int = 0,
        kinds: str = "",
        values: tuple[int, ...] = (),
        stream: int = 0,
        waits: tuple[int, ...] = (),
        is_dependent: bool = False,
    ) -> None:
        self.kernel = kernel
        self.grid = grid
        self.block = block
        self.shared_bytes = shared_bytes
        self.kinds = kinds
        self.values = values
        self.stream = stream
        self.waits = waits
        self.is_dependent = is_dependent


class Partition(Record):
    """Operators of a graph that run together in one place.

    Attributes:
        place: name of a target for a compiled partition, or "litert".
        nodes: the positions of its operators in the subgraph.
        inputs, outputs: indices of the tensors that it reads from and writes for other partitions.
        offset, nbytes: of its content in the weights: a program file, or a .tflite file for "litert". No bytes mean
            that it is compiled later, when LiteRT knows its shapes.
        hash: xxh3-128 of a .tflite file in hex; "" for a program file, which holds its own.
    """

    __slots__ = ("hash", "inputs", "nbytes", "nodes", "offset", "outputs", "place")

    def __init__(
        self,
        *,
        place: str,
        nodes: tuple[int, ...],
        inputs: tuple[int, ...],
        outputs: tuple[int, ...],
        offset: int,
        nbytes: int,
        hash: str = "",
    ) -> None:
        self.place = place
        self.nodes = nodes
        self.inputs = inputs
        self.outputs = outputs
        self.offset = offset
        self.nbytes = nbytes
        self.hash = hash


class IdleSubgraph(Record):
    """A subgraph that never runs, though LiteRT's interpreter offers it to a delegate.

    Attributes:
        number: index among the model's subgraphs.
        num_tensors, num_nodes: as in the file.
        ports: its inputs and outputs.
        codes: TFLite's numbers of its operators.
    """

    __slots__ = ("codes", "num_nodes", "num_tensors", "number", "ports")

    def __init__(
        self, *, number: int, num_tensors: int, num_nodes: int, ports: tuple[Port, ...], codes: tuple[int, ...]
    ) -> None:
        self.number = number
        self.num_tensors = num_tensors
        self.num_nodes = num_nodes
        self.ports = ports
        self.codes = codes


class Program(Record):
    """A compiled model.

    Attributes:
        key: the parts of its cache key.
        target: name of its target; "litert" for a model that LiteRT runs whole (without segments).
        features: instruction set of the code; for CUDA the architecture, like "sm_90".
        loader: "flat" (position-independent blob), "object" (relocatable object for llvmlite's loader), "cubin" (CUDA
            binaries, each at a multiple of CUBIN_ALIGNMENT), "partitions" (compiled and LiteRT's partitions, run in
            order), "delegate" (compiled partitions for LiteRT's own interpreter, which runs the rest), the name of a
            target with a loader of its own, or "none".
        inputs, outputs: the model's tensors in the model's order.
        states: values that live from run to run. For the code, each is a further input and a further output, after the
            model's own.
        signatures, operators, kernels: for interfaces and reports. Operators and kernels may be given as functions,
            which are called on first use: decoding hundreds of them costs more than opening the rest.
        arena_bytes, scratch_bytes, sync_bytes: zeroed memory to provide; scratch_bytes is per thread. For CUDA the
            arena lies on the device, not zeroed.
        entries: function names and their offsets into the code; for CUDA each kernel's name and the offset of its
            binary, which kernels may share.
        launches: the launches of one inference on a CUDA device, in order.
        input_offsets, output_offsets: of the ports, then of the states, in bytes. Those of states are in a CUDA
            device's arena. Those of ports begin at its end, are equal for ports that share memory, and only tell such
            memory apart; a state may have a port's.
        code, weights: segments; views into the file for a program that was read.
        partitions: of a graph that is not compiled as a whole; their content lies in the weights.
        between: tensors that pass between partitions, in no order.
        num_subgraphs: number of subgraphs of the model.
        num_tensors, num_nodes: of the subgraph, as in the file.
        idle: subgraphs that never run, though LiteRT's interpreter has them.
        narrow_states: 1 where LiteRT needs the copy of the model that `tflite.svdf_states` makes, else 0.
        aliases: pairs (position of an input, position of an output) that may share memory in a run; states count as
            inputs and outputs as for the code. A run on its own result computes the same result again.
        shape_inputs: positions of the shape inputs. The runtime specializes the model, which runs on LiteRT otherwise,
            for their values.
        weights_hash: xxh3-128 of the weights in hex; `write` sets its own in the file.
        borrowed: pages of the weights that the program's file lacks, since another program of the model stores them, as
            (first page, lender, first page there, pages), in order. A lender is a number among the key's `lenders`; its
            pages are counted in what its own file stores of its weights. `write` sets its own in the file.
        large_constants: where large constants lie in the weights: first page and number of pages of each, one after
            another. Code finds each by an address of its own, on the CPU at the end of io.
        main_hash: `weights_hash` of lender 0, the main program; "" where nothing is borrowed from it.
        notes: sentences about its compilation for the report.
        failure: why the compiler failed as a whole, which LiteRT runs the model for; "" where it did not.
        refusals: what a run says that stops where LiteRT's kernels stop, by the number in its status word, from 1 on;
            {} stands for the value found. Programs of partitions leave them to the partitions' own.
        windows: of the rows of inputs that a run updates: (position of the updated input, position of an integer input,
            element of that one, its largest value so that the rows lie within the updated input); 0 is the smallest. A
            run with another value moves the rows into the tensor, as LiteRT does.
    """

    __slots__ = (
        "_kernels",
        "_operators",
        "aliases",
        "arena_bytes",
        "between",
        "borrowed",
        "code",
        "entries",
        "failure",
        "features",
        "idle",
        "input_offsets",
        "inputs",
        "key",
        "large_constants",
        "launches",
        "loader",
        "main_hash",
        "narrow_states",
        "notes",
        "num_nodes",
        "num_subgraphs",
        "num_tensors",
        "output_offsets",
        "outputs",
        "partitions",
        "refusals",
        "scratch_bytes",
        "shape_inputs",
        "signatures",
        "states",
        "sync_bytes",
        "target",
        "weights",
        "weights_hash",
        "windows",
    )

    def __init__(
        self,
        *,
        key: tuple[tuple[str, str], ...],
        target: str,
        features: str = "",
        loader: str = "none",
        inputs: tuple[Port, ...] = (),
        outputs: tuple[Port, ...] = (),
        signatures: tuple[Signature, ...] = (),
        operators: tuple[Operator, ...] | Callable[[], tuple[Operator, ...]] = (),
        kernels: tuple[Kernel, ...] | Callable[[], tuple[Kernel, ...]] = (),
        arena_bytes: int = 0,
        scratch_bytes: int = 0,
        sync_bytes: int = 0,
        entries: tuple[tuple[str, int], ...] = (),
        launches: tuple[Launch, ...] = (),
        input_offsets: tuple[int, ...] = (),
        output_offsets: tuple[int, ...] = (),
        states: tuple[State, ...] = (),
        code: Bytes = b"",
        weights: Bytes = b"",
        partitions: tuple[Partition, ...] = (),
        between: tuple[Port, ...] = (),
        num_subgraphs: int = 1,
        num_tensors: int = 0,
        num_nodes: int = 0,
        idle: tuple[IdleSubgraph, ...] = (),
        narrow_states: int = 0,
        aliases: tuple[tuple[int, int], ...] = (),
        shape_inputs: tuple[int, ...] = (),
        weights_hash: str = "",
        borrowed: Loans = (),
        main_hash: str = "",
        large_constants: tuple[int, ...] = (),
        notes: tuple[str, ...] = (),
        failure: str = "",
        refusals: tuple[str, ...] = (),
        windows: tuple[tuple[int, int, int, int], ...] = (),
    ) -> None:
        self.key = key
        self.target = target
        self.features = features
        self.loader = loader
        self.inputs = inputs
        self.outputs = outputs
        self.signatures = signatures
        self._operators = operators
        self._kernels = kernels
        self.arena_bytes = arena_bytes
        self.scratch_bytes = scratch_bytes
        self.sync_bytes = sync_bytes
        self.entries = entries
        self.launches = launches
        self.input_offsets = input_offsets
        self.output_offsets = output_offsets
        self.states = states
        self.code = code
        self.weights = weights
        self.partitions = partitions
        self.between = between
        self.num_subgraphs = num_subgraphs
        self.num_tensors = num_tensors
        self.num_nodes = num_nodes
        self.idle = idle
        self.narrow_states = narrow_states
        self.aliases = aliases
        self.shape_inputs = shape_inputs
        self.weights_hash = weights_hash
        self.borrowed = borrowed
        self.main_hash = main_hash
        self.large_constants = large_constants
        self.notes = notes
        self.failure = failure
        self.refusals = refusals
        self.windows = windows

    @property
    def operators(self) -> tuple[Operator, ...]:
        """The model's operators in order."""
        if callable(self._operators):
            self._operators = self._operators()
        return self._operators

    @operators.setter
    def operators(self, operators: tuple[Operator, ...]) -> None:
        self._operators = operators

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The generated kernels, in the order in which they run."""
        if callable(self._kernels):
            self._kernels = self._kernels()
        return self._kernels

    def content(self, partition: Partition) -> Bytes:
        """The file of one of its partitions."""
        return self.weights[partition.offset : partition.offset + partition.nbytes]

    def part(self, name: str) -> str:
        """The value of a key part; "" if there is no such part."""
        return dict(self.key).get(name, "")

    @property
    def delegated(self) -> int:
        """Number of operators that do not run on LiteRT."""
        return sum(operator.place != "litert" for operator in self.operators)
