"""Program and its parts: plain values that the compiler writes and the runtime reads, and their layout in the file.

A field is declared here once, with its type, from which its layout follows; `program.fbs` is written from it. Its slot
in a table is its position in the class: new fields go behind the others of the file, and every change increments
FORMAT_VERSION.

Load path: plain classes, since importing dataclasses costs more than opening a program.
"""

from __future__ import annotations

import struct

from jitdelegate.errors import ProgramError, shortened

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, ClassVar, TypeAlias, TypeVar, dataclass_transform

    Bytes = bytes | bytearray | memoryview
    FileParts = tuple[Bytes, ...]
    SharedPages = tuple[tuple[int, int, int, int], ...]
    Kind: TypeAlias = "str | Layout | Packed"
    Made = TypeVar("Made", bound="Record")
else:

    def dataclass_transform(**_):
        return lambda made: made


MAGIC = b"\x89JITDEL\n"
FORMAT_VERSION = 13
TABLE_IDENTIFIER = b"JITD"
ALIGNMENT = 4096
"""Bytes of a page, at whose multiples weights begin that may be mapped."""
LINE = 64
"""Bytes of a cache line, at whose multiples the other parts of a file begin, which are read."""
HEADER = struct.Struct("<8sII7Q16s16s")
"""Magic, format version, header bytes, file bytes, (offset, bytes) of table, code and stored weights, hashes of table
and code; the header's own hash follows, over all of these."""
HASH_BYTES = 16
HEADER_BYTES = HEADER.size + HASH_BYTES
STRING, INTEGER, INTEGERS, REALS = "string", "long", "[long]", "[double]"
LARGEST_MEMORY = 1 << 40
"""Largest number of bytes that a program may ask for, and largest number of anything else."""
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
MOST_REFUSALS = (1 << 16) - 2
"""Most refusals of a program: their numbers have 16 bits of a status word."""
ZEROS = -1
"""`State.initial` of a state that begins with zeros."""
CUBIN_ALIGNMENT = 64
"""Alignment in bytes of every CUDA binary in the code."""


def general_reason(reason: str) -> str:
    """The reason of an operator without the name of a tensor of unknown shape, so that those of a sequence are one."""
    return f"The shape of what is read {UNKNOWN_SHAPE}" if reason.endswith(UNKNOWN_SHAPE) else reason


class Layout:
    """The fields of one kind of table.

    Attributes:
        name: the table's name in program.fbs.
        make: makes the object from its fields, given by keyword.
        fields: name and kind, by slot. The kind Layout is a vector of such tables, Packed a vector of integers.
    """

    __slots__ = ("fields", "make", "name")

    def __init__(self, name: str, make: Callable[..., Any], fields: Sequence[tuple[str, Kind]]) -> None:
        self.name = name
        self.make = make
        self.fields = fields


class Packed:
    """Objects stored as one vector of integers or strings, which reads faster than tables.

    Attributes:
        name: the type of the vector's elements in program.fbs, INTEGER or STRING.
        size: elements of each object, which is a tuple of them; 1 for elements alone, VARIES for launches.
    """

    __slots__ = ("name", "size")

    def __init__(self, name: str, size: int) -> None:
        self.name = name
        self.size = size


VARIES = 0
_KINDS: dict[str, Kind] = {
    "str": STRING,
    "int": INTEGER,
    "tuple[int, ...]": INTEGERS,
    "tuple[float, ...]": REALS,
    "tuple[str, ...]": Packed(STRING, 1),
    "tuple[tuple[str, str], ...]": Packed(STRING, 2),
    "tuple[tuple[str, int], ...]": Layout("Place", lambda name, at: (name, at), (("name", STRING), ("at", INTEGER))),
    "tuple[tuple[int, int], ...]": Packed(INTEGER, 2),
    "tuple[tuple[int, int, int, int], ...]": Packed(INTEGER, 4),
    "tuple[Launch, ...]": Packed(INTEGER, VARIES),
}
"""Type of a field -> how the file stores it. The classes below join it, as vectors of tables. Fields of other types are
not in the table."""


@dataclass_transform(kw_only_default=True)
class _Declared(type):
    """Makes the slots, the defaults and the layout of a class from its annotated names."""

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> _Declared:
        declared: dict[str, str] = namespace.get("__annotations__", {})
        defaults = {field: namespace.pop(field) for field in declared if field in namespace}
        namespace |= {"_defaults": defaults, "__slots__": (*declared, *namespace.get("__slots__", ()))}
        made: Any = super().__new__(mcs, name, bases, namespace)
        made.fields = tuple(declared)
        made.layout = Layout(name, made, [(field, _KINDS[kind]) for field, kind in declared.items() if kind in _KINDS])
        _KINDS.setdefault(f"tuple[{name}, ...]", made.layout)
        return made  # type: ignore[no-any-return]


class Record(metaclass=_Declared):
    """A class whose values are its annotated names, given by keyword: compared and shown by value.

    Attributes:
        layout: of its table in the file.
        fields: the annotated names.
    """

    if TYPE_CHECKING:
        layout: ClassVar[Layout]
        fields: ClassVar[tuple[str, ...]]
    else:

        def __init__(self, **values):
            values = self._defaults | values
            if values.keys() != {*self.fields}:
                raise TypeError(f"{type(self).__name__} of {[*values]}, expected {[*self.fields]}")
            for name, value in values.items():
                setattr(self, name, value)

    def contents(self) -> dict[str, Any]:
        """The values by name."""
        return {name: getattr(self, name) for name in self.fields}

    def altered(self: Made, **values: object) -> Made:
        """A copy with other values."""
        return type(self)(**(self.contents() | values))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Record) or type(other) is not type(self):
            return NotImplemented
        return self.contents() == other.contents()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in sorted(self.fields))
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

    name: str
    index: int
    shape: tuple[int, ...]
    shape_signature: tuple[int, ...] = ()
    dtype: str
    scales: tuple[float, ...] = ()
    zero_points: tuple[int, ...] = ()
    axis: int = 0
    nbytes: int

    if not TYPE_CHECKING:

        def __init__(self, **values):
            super().__init__(**({"shape_signature": values["shape"]} | values))

    @property
    def title(self) -> str:
        """The name for messages, which is not longer than `errors.LONGEST_NAME`."""
        return shortened(self.name)


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

    name: str
    nbytes: int
    initial: int = ZEROS
    is_resource: int = 0
    index: int = NO_TENSOR
    shape: tuple[int, ...] = ()
    dtype: str = "float32"


class Signature(Record):
    """A named way to call the model: argument names with their tensor indices."""

    key: str
    graph: int
    inputs: tuple[tuple[str, int], ...]
    outputs: tuple[tuple[str, int], ...]


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

    index: int
    op: str
    place: str
    reason: str = ""
    kernel: int = NO_KERNEL
    partition: int = NO_PARTITION
    code: int = 0
    execution: str = ""


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

    name: str
    form: str
    chunks: int
    threads: int = 0
    registers: int = 0
    spill_bytes: int = 0
    stack_bytes: int = 0
    shared_bytes: int = 0


class Launch(Record):
    """One launch of a CUDA kernel.

    Attributes:
        kernel: its index among the program's entries, which are its kernels in their order.
        grid, block: (x, y, z), in blocks and in threads.
        shared_bytes: dynamic shared memory of one block.
        kinds: one letter per argument: "a" is the arena's address plus the value, "w" the weights' address plus the
            value, "p" the address in the memory of an input or output, which begins at its offset, "i" an int32, "f"
            a float32 given by its bits, "s" the address of the status word, which few runs write. The kernel writes to
            the first one's memory; where it writes to further memory, that is no input's.
        values: one per letter.
        stream: launches of other streams may run at the same time. Without branches there is only stream 0.
        waits: launches of other streams that have to end before.
        is_dependent: whether it may begin while the launch before it in its stream still runs, for whose end its kernel
            waits; it waits for no other.
    """

    kernel: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int = 0
    kinds: str = ""
    values: tuple[int, ...] = ()
    stream: int = 0
    waits: tuple[int, ...] = ()
    is_dependent: bool = False


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

    place: str
    nodes: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    offset: int
    nbytes: int
    hash: str = ""


class IdleSubgraph(Record):
    """A subgraph that never runs, though LiteRT's interpreter offers it to a delegate.

    Attributes:
        number: index among the model's subgraphs.
        num_tensors, num_nodes: as in the file.
        ports: its inputs and outputs.
        codes: TFLite's numbers of its operators.
    """

    number: int
    num_tensors: int
    num_nodes: int
    ports: tuple[Port, ...]
    codes: tuple[int, ...]


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
        signatures: for interfaces and reports.
        operators: the model's operators in order.
        kernels: the generated kernels, in the order in which they run.
        arena_bytes, scratch_bytes, sync_bytes: memory to provide; scratch_bytes is per thread; sync_bytes are zeroed.
            For CUDA the arena lies on the device. Programs of partitions have the largest sizes of their partitions,
            which use the same arena and scratch in turns.
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
        shared: pages of the weights that the program's file lacks, since another program of the model stores them, as
            (first page, source, first page there, pages), in order. The source is a number among the key's
            `weight_sources`; its pages are counted in what its own file stores. In a program that is being compiled,
            `weights` lack them too; `write` adds those that it finds.
        large_constants: where large constants lie in the weights: first page and number of pages of each, one after
            another. Code finds each by an address of its own, on the CPU at the end of io.
        main_hash: `weights_hash` of source 0, the main program; "" where nothing is shared with it.
        notes: sentences about its compilation for the report.
        failure: why the compiler failed as a whole, which LiteRT runs the model for; "" where it did not.
        refusals: what a run says that stops where LiteRT's kernels stop, by the number in its status word, from 1 on;
            {} stands for the value found. Programs of partitions leave them to the partitions' own.
        windows: of the rows of inputs that a run updates: (position of the updated input, position of an integer input,
            element of that one, its largest value so that the rows lie within the updated input); 0 is the smallest. A
            run with another value moves the rows into the tensor, as LiteRT does.
        named_constants: large constants by name: (the name's halves, first page, bytes). Programs that are compiled
            later find them so (`program/known_constants.py`).
    """

    key: tuple[tuple[str, str], ...]
    target: str
    features: str = ""
    loader: str = "none"
    inputs: tuple[Port, ...] = ()
    outputs: tuple[Port, ...] = ()
    signatures: tuple[Signature, ...] = ()
    operators: tuple[Operator, ...] = ()
    kernels: tuple[Kernel, ...] = ()
    arena_bytes: int = 0
    scratch_bytes: int = 0
    sync_bytes: int = 0
    entries: tuple[tuple[str, int], ...] = ()
    num_subgraphs: int = 1
    weights_hash: str = ""
    launches: tuple[Launch, ...] = ()
    input_offsets: tuple[int, ...] = ()
    output_offsets: tuple[int, ...] = ()
    states: tuple[State, ...] = ()
    shape_inputs: tuple[int, ...] = ()
    partitions: tuple[Partition, ...] = ()
    between: tuple[Port, ...] = ()
    num_tensors: int = 0
    num_nodes: int = 0
    idle: tuple[IdleSubgraph, ...] = ()
    narrow_states: int = 0
    aliases: tuple[tuple[int, int], ...] = ()
    shared: tuple[tuple[int, int, int, int], ...] = ()
    main_hash: str = ""
    large_constants: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
    failure: str = ""
    refusals: tuple[str, ...] = ()
    windows: tuple[tuple[int, int, int, int], ...] = ()
    named_constants: tuple[tuple[int, int, int, int], ...] = ()
    code: Bytes = b""
    weights: Bytes = b""

    __slots__ = ("_later",)

    def read_later(self, **fields: Callable[[], Any]) -> None:
        """Read these fields at their first use: decoding hundreds of operators costs more than opening the rest."""
        self._later = fields
        for name in fields:
            delattr(self, name)

    if not TYPE_CHECKING:

        def __getattr__(self, name):
            if name not in READ_LATER:
                raise AttributeError(f"a Program has no attribute {name!r}")
            value = self._later[name]()
            setattr(self, name, value)
            return value

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


READ_LATER = ("operators", "kernels", "named_constants")
"""Fields that only reports and the compiler use; the reader decodes them at their first use."""


def aligned(offset: int, unit: int = ALIGNMENT) -> int:
    """The first multiple of `unit` at or after `offset`."""
    return -(-offset // unit) * unit


def check_range(name: str, value: int, largest: int, smallest: int = 0) -> None:
    """
    Raises:
        ProgramError: the value is out of bounds.
    """
    if not smallest <= value <= largest:
        raise ProgramError(f"{name} is {value}, expected {smallest} to {largest}")


def check_port(port: Port) -> None:
    """
    Raises:
        ProgramError: a size is out of bounds.
    """
    check_range(f"bytes of tensor {port.name}", port.nbytes, LARGEST_MEMORY)
    for size in port.shape:
        check_range(f"a size of tensor {port.name}", size, LARGEST_MEMORY)
