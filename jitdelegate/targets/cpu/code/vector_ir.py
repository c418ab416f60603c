"""A small builder of LLVM IR for vector kernels: typed values with arithmetic, and structured loops instead of strings.

Kernels are emitted as text that llvmlite parses. Writing the text directly costs a few microseconds per instruction,
which keeps the compilation of a whole network below a second.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from jitdelegate.base.targets import Level
from jitdelegate.errors import TooLongError
from jitdelegate.ir.expr import converted

INDEX = "i64"
POINTER = "ptr"
FLOAT = "float"
DOUBLE = "double"
HALF = "half"
BOOL = "i1"
FLOAT_BYTES = 4
MAX_LINES = 1_500_000
"""Most instructions of one module: about a minute of compilation. The largest known networks take 30 000."""
NUMBERS_A_LINE = 32
"""Numbers in a table that are compiled in the time of one instruction."""
REGISTERS = {"float32": FLOAT, "float64": DOUBLE, "bool": BOOL}
"""Types of elements in registers that are no integers as they are stored."""
BITS = {FLOAT: 32, DOUBLE: 64, HALF: 16, "bfloat": 16}
PAIRS = {16: "x86.avx512.pmaddw.d.512", 8: "x86.avx2.pmadd.wd", 4: "x86.sse2.pmadd.wd"}
"""Sums in a vector -> LLVM's function that multiplies int16 and adds up neighbours."""
INTRINSICS = {
    **{name: name for name in ("copysign", "floor", "ceil", "trunc", "sqrt")},
    "abs": "fabs",
    "round": "rint",
}
"""Name in `ir.expr` -> LLVM's function of floats."""


def vector(lanes: int, element: str = FLOAT) -> str:
    """The type of `lanes` elements; a single lane is the scalar itself."""
    return element if lanes == 1 else f"<{lanes} x {element}>"


def element_type(type_: str) -> str:
    """The element of a vector type, or the scalar type itself."""
    return type_[:-1].split(" x ")[1] if type_[0] == "<" else type_


def register(dtype: str) -> str:
    """The type of one element in registers: bools are one bit, float16 is its bits, the others as they are stored."""
    return REGISTERS.get(dtype) or f"i{8 * np.dtype(dtype).itemsize}"


def lanes_of(type_: str) -> int:
    """Number of elements of a vector type; 1 for scalars."""
    return int(type_[1:].split(" x ")[0]) if type_[0] == "<" else 1


def is_float(type_: str) -> bool:
    """True for floats and doubles, and vectors of them."""
    return element_type(type_) in (FLOAT, DOUBLE)


def float_literal(value: float, element: str = FLOAT) -> str:
    """A float or a double in LLVM's notation: for both, the bits of the value as a double."""
    if element == FLOAT:
        value = struct.unpack("<f", struct.pack("<f", value))[0]
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


class Value:
    """An SSA value of one function; operators emit the instruction for its type, `pointer + bytes` moves a pointer.

    `//` and `%` are unsigned, `>>` is logical.
    """

    __slots__ = ("function", "text", "type")

    def __init__(self, function: Function, type_: str, text: str) -> None:
        self.function = function
        self.type = type_
        self.text = text

    def __str__(self) -> str:
        return f"{self.type} {self.text}"

    @property
    def lanes(self) -> int:
        """Number of elements; 1 for scalars."""
        return lanes_of(self.type)

    @property
    def is_float(self) -> bool:
        return is_float(self.type)

    @property
    def bits(self) -> int:
        """Bits of one element."""
        element = element_type(self.type)
        return BITS[element] if element in BITS else int(element[1:])

    def __add__(self, other: Value | float) -> Value:
        if self.type == POINTER:
            return self.function.offset(self, other)
        return self.function.arithmetic("add", self, other)

    def __sub__(self, other: Value | float) -> Value:
        return self.function.arithmetic("sub", self, other)

    def __mul__(self, other: Value | float) -> Value:
        return self.function.arithmetic("mul", self, other)

    def __truediv__(self, other: Value | float) -> Value:
        return self.function.arithmetic("div", self, other)

    def __floordiv__(self, other: Value | int) -> Value:
        return self.function.arithmetic("udiv", self, other)

    def __mod__(self, other: Value | int) -> Value:
        return self.function.arithmetic("urem", self, other)

    def __and__(self, other: Value | int) -> Value:
        return self.function.bitwise("and", self, other)

    def __or__(self, other: Value | int) -> Value:
        return self.function.bitwise("or", self, other)

    def __xor__(self, other: Value | int) -> Value:
        return self.function.bitwise("xor", self, other)

    def __lshift__(self, other: Value | int) -> Value:
        return self.function.bitwise("shl", self, other)

    def __rshift__(self, other: Value | int) -> Value:
        return self.function.bitwise("lshr", self, other)

    def __rsub__(self, other: float) -> Value:
        return self.function.like(other, self) - self

    def __rtruediv__(self, other: float) -> Value:
        return self.function.like(other, self) / self

    def __neg__(self) -> Value:
        return self.function.emit(self.type, f"fneg {self}") if self.is_float else 0 - self


@dataclass
class Module:
    """Functions, declarations and read-only data of one compiled graph."""

    machine: Level
    functions: list[str] = field(default_factory=list)
    declarations: set[str] = field(default_factory=set)
    constants: list[str] = field(default_factory=list)
    tables: dict[tuple[int, ...], str] = field(default_factory=dict)
    lines: int = 0

    def function(self, name: str, parameters: Sequence[tuple[str, str]], *, exported: bool = False) -> Function:
        """A new void function; internal unless `exported`."""
        return Function(self, name, parameters, exported=exported)

    def constant(self, name: str, values: Sequence[int], element: str = INDEX) -> str:
        """Adds a read-only array of integers; returns its pointer operand."""
        self.count(len(values) // NUMBERS_A_LINE)
        elements = ", ".join(f"{element} {value}" for value in values)
        self.constants.append(f"@{name} = internal constant [{len(values)} x {element}] [{elements}], align 64")
        return f"@{name}"

    def table(self, entries: Sequence[int]) -> str:
        """Adds a read-only array of 32-bit integers, once for equal entries; returns its pointer operand."""
        key = tuple(entries)
        if key not in self.tables:
            self.tables[key] = self.constant(f"table{len(self.tables)}", key, "i32")
        return self.tables[key]

    def count(self, lines: int) -> None:
        """Counts lines that were added to the module.

        Raises:
            TooLongError: the module has more than MAX_LINES.
        """
        self.lines += lines
        if self.lines > MAX_LINES:
            raise TooLongError(f"The graph's code has more than {MAX_LINES} instructions.")

    def declare(self, declaration: str) -> None:
        """Declares an intrinsic in the module."""
        self.declarations.add(f"declare {declaration}")

    def text(self, triple: str) -> str:
        """The whole module in LLVM's assembly language."""
        parts = [f'target triple = "{triple}"', *self.constants, *sorted(self.declarations), *self.functions]
        return "\n".join(parts) + "\n"


class Function:
    """Emits one function's instructions in order; loops and conditions take their bodies as Python functions."""

    def __init__(
        self, module: Module, name: str, parameters: Sequence[tuple[str, str]], *, exported: bool, result: str = "void"
    ) -> None:
        self.module = module
        self.name = name
        self.result = result
        self.parameters = [Value(self, type_, f"%{label}") for label, type_ in parameters]
        self.linkage = "" if exported else "internal "
        self.lines = ["entry:"]
        self.counter = 0
        self.label = "entry"

    @property
    def code(self) -> str:
        """The parameters and the body written so far: equal for functions that do the same."""
        return "\n".join([f"({', '.join(map(str, self.parameters))})", *self.lines])

    def add_parameter(self, type_: str) -> Value:
        """A further parameter, after those that the function has."""
        self.parameters.append(Value(self, type_, f"%p{len(self.parameters)}"))
        return self.parameters[-1]

    # values

    def name_value(self) -> str:
        self.counter += 1
        return f"%v{self.counter}"

    def emit(self, type_: str, instruction: str) -> Value:
        """Emits an instruction; returns its value."""
        name = self.name_value()
        self.lines.append(f"  {name} = {instruction}")
        return Value(self, type_, name)

    def do(self, instruction: str) -> None:
        """Emits an instruction without a value."""
        self.lines.append("  " + instruction)

    def index(self, value: int) -> Value:
        """A 64-bit integer constant."""
        return Value(self, INDEX, str(value))

    def literal(self, type_: str, value: float) -> Value:
        """A constant of a scalar or vector type, the same in every lane."""
        element = element_type(type_)
        text = float_literal(value, element) if is_float(element) else str(int(value))
        text = f"0xH{np.float16(value).view(np.uint16):04X}" if element == HALF else text
        return Value(self, type_, text if lanes_of(type_) == 1 else f"splat ({element} {text})")

    def constant(self, dtype: str, number: float, lanes: int = 1) -> Value:
        """A number as an element of the IR's type `dtype`, converted as `ir.expr.Cast` does, in every lane."""
        stored = converted(np.asarray(number), dtype)
        signed = stored.view(f"i{stored.itemsize}") if stored.dtype.kind == "u" or dtype == "float16" else stored
        return self.literal(vector(lanes, register(dtype)), signed.item())

    def like(self, number: Value | float, example: Value) -> Value:
        """A Python number as a constant of the example's type; a value unchanged."""
        return number if isinstance(number, Value) else self.literal(example.type, number)

    def arithmetic(self, operation: str, left: Value, right: Value | float) -> Value:
        """`add sub mul div udiv urem` on integers or floats; integer identities cost no instruction."""
        if left.type == INDEX and isinstance(right, int):
            if (right == 0 and operation in ("add", "sub")) or (right == 1 and operation in ("mul", "udiv")):
                return left
            if right == 0 and operation == "mul":
                return self.index(0)
        right = self.like(right, left)
        assert left.type == right.type, (operation, left.type, right.type)
        prefix = "f" if is_float(left.type) else ""
        return self.emit(left.type, f"{prefix}{operation} {left.type} {left.text}, {right.text}")

    def bitwise(self, operation: str, left: Value, right: Value | float) -> Value:
        """`and or xor shl lshr ashr sdiv` of integers."""
        return self.emit(left.type, f"{operation} {left}, {self.like(right, left).text}")

    def sdiv(self, a: Value, b: Value) -> Value:
        """Quotient of signed integers, rounded towards zero; `b` must not be 0, and the quotient must not overflow."""
        return self.bitwise("sdiv", a, b)

    def ashr(self, value: Value, distance: Value | int) -> Value:
        """Arithmetic shift to the right."""
        return self.bitwise("ashr", value, distance)

    def offset(self, pointer: Value, count: Value | float) -> Value:
        """`pointer` moved by `count` bytes."""
        if isinstance(count, Value):
            return self.emit(POINTER, f"getelementptr i8, {pointer}, {count}")
        return pointer if count == 0 else self.emit(POINTER, f"getelementptr i8, {pointer}, i64 {int(count)}")

    def compare(self, condition: str, left: Value, right: Value | float) -> Value:
        """`eq ne ult slt ...` on integers and pointers, `olt ogt ...` on floats."""
        right = self.like(right, left)
        instruction = "fcmp" if is_float(left.type) else "icmp"
        type_ = vector(lanes_of(left.type), BOOL)
        return self.emit(type_, f"{instruction} {condition} {left.type} {left.text}, {right.text}")

    def select(self, condition: Value, if_true: Value | float, if_false: Value | float) -> Value:
        """`if_true` where the mask is set, else `if_false`; at most one of them is a Python number."""
        example = if_true if isinstance(if_true, Value) else if_false
        assert isinstance(example, Value)
        if_true, if_false = self.like(if_true, example), self.like(if_false, example)
        return self.emit(example.type, f"select {condition}, {if_true}, {if_false}")

    def cast(self, operation: str, value: Value, type_: str) -> Value:
        """`sitofp fptosi bitcast zext ...` to `type_`."""
        return self.emit(type_, f"{operation} {value} to {type_}")

    def convert(self, operation: str, value: Value, element: str) -> Value:
        """`sitofp fptosi bitcast zext ...` to elements of a type."""
        return self.cast(operation, value, vector(value.lanes, element))

    def to_integer(self, value: Value, dtype: str) -> Value:
        """A float rounded towards zero and clamped to the range of the integer type `dtype`; NaN gives 0."""
        type_, sign = vector(value.lanes, register(dtype)), "u" if dtype[0] == "u" else "s"
        return self.machine_call(f"fpto{sign}i.sat.{_suffix(type_)}.{_suffix(value.type)}", type_, value)

    def intrinsic(self, name: str, type_: str, *arguments: Value) -> Value:
        """A call of an LLVM intrinsic that is overloaded on its first argument's type."""
        return self.machine_call(f"{name}.{_suffix(arguments[0].type)}", type_, *arguments)

    def align(self, nbytes: int) -> Value:
        """An alignment, as LLVM's functions take it."""
        return Value(self, "i32", str(nbytes))

    def machine_call(self, name: str, type_: str, *values: Value) -> Value:
        """A call of LLVM's function `llvm.` + name, such as one instruction of a machine."""
        self.module.declare(f"{type_} @llvm.{name}({', '.join(value.type for value in values)})")
        return self.emit(type_, f"call {type_} @llvm.{name}({', '.join(map(str, values))})")

    @property
    def has_half(self) -> bool:
        return self.module.machine.has_half

    def native(self, name: str, *values: Value) -> Value | None:
        """A function of floats as one instruction; None if there is no such instruction."""
        if name == "nearest":
            return self._nearest(values[0])
        if name == "fma":
            return self.fma(*values) if self.module.machine.has_fma else None
        if name in INTRINSICS:
            return self.intrinsic(INTRINSICS[name], values[0].type, *values)
        has_scale = name == "scale" and values[0].lanes == self.module.machine.avx512_lanes
        return self._scale(*values) if has_scale else None

    def _nearest(self, value: Value) -> Value:
        """The nearest whole numbers of floats, halves to even (cvtps2dq, fcvtns)."""
        machine, type_ = self.module.machine, vector(value.lanes, "i32")
        if machine.nearest and value.lanes == machine.lanes:
            return self.machine_call(machine.nearest, type_, value)
        return self.machine_call(f"lrint.{_suffix(type_)}.{_suffix(value.type)}", type_, value)

    def _scale(self, a: Value, n: Value) -> Value:
        """a * 2**floor(n), rounded once (vscalefps)."""
        mask, rounding = Value(self, "i16", "-1"), Value(self, "i32", "4")
        return self.machine_call(f"x86.avx512.mask.scalef.ps.{32 * a.lanes}", a.type, a, n, a, mask, rounding)

    def fma(self, a: Value, b: Value | float, c: Value | float) -> Value:
        """a * b + c, rounded once where the machine has FMA, twice elsewhere."""
        name = "fma" if self.module.machine.has_fma else "fmuladd"
        return self.intrinsic(name, a.type, a, self.like(b, a), self.like(c, a))

    def fshl(self, high: Value, low: Value, distance: Value) -> Value:
        """The upper half of (high, low), shifted left by `distance`."""
        return self.intrinsic("fshl", high.type, high, low, distance)

    def maximum(self, a: Value, b: Value | float) -> Value:
        """The larger of two floats or signed integers; NaN in `a` stays NaN (one vmaxps)."""
        b = self.like(b, a)
        return self.select(self.compare("ogt", b, a), b, a) if a.is_float else self.intrinsic("smax", a.type, a, b)

    def minimum(self, a: Value, b: Value | float) -> Value:
        """The smaller of two floats or signed integers; NaN in `a` stays NaN (one vminps)."""
        b = self.like(b, a)
        return self.select(self.compare("olt", b, a), b, a) if a.is_float else self.intrinsic("smin", a.type, a, b)

    def splat(self, scalar: Value, lanes: int) -> Value:
        """A vector with `scalar` in every lane."""
        if lanes == 1:
            return scalar
        type_ = vector(lanes, scalar.type)
        first = self.emit(type_, f"insertelement {type_} poison, {scalar}, i64 0")
        return self.emit(type_, f"shufflevector {first}, {type_} poison, <{lanes} x i32> zeroinitializer")

    def shuffle(self, a: Value, b: Value, order: Sequence[int]) -> Value:
        """A vector of lanes of a and b, selected by number: b's lanes are numbered after a's."""
        lanes = ", ".join(f"i32 {lane}" for lane in order)
        type_ = vector(len(order), element_type(a.type))
        return self.emit(type_, f"shufflevector {a}, {b}, <{len(order)} x i32> <{lanes}>")

    def part(self, value: Value, first: int, count: int) -> Value:
        """`count` neighbouring lanes; one lane is the scalar itself."""
        if count == value.lanes:
            return value
        if count == 1:
            return self.emit(element_type(value.type), f"extractelement {value}, i64 {first}")
        return self.shuffle(value, value, range(first, first + count))

    def opaque(self, value: Value) -> Value:
        """The same floats, of which LLVM does not know that they are equal: it would make a vector of its first lanes
        anew, which are in the same register."""
        return self.machine_call(f"arithmetic.fence.{_suffix(value.type)}", value.type, value)

    def first_lanes(self, count: Value, lanes: int) -> Value:
        """A mask whose first `count` lanes are set; a constant for a constant."""
        if count.text.isdecimal():
            flags = ", ".join(f"i1 {int(lane < int(count.text))}" for lane in range(lanes))
            return Value(self, vector(lanes, BOOL), f"<{flags}>")
        numbers = ", ".join(f"i32 {lane}" for lane in range(lanes))
        limit = self.splat(self.cast("trunc", count, "i32"), lanes)
        return self.emit(vector(lanes, BOOL), f"icmp ult <{lanes} x i32> <{numbers}>, {limit.text}")

    # memory

    def load(self, type_: str, pointer: Value, align: int = FLOAT_BYTES) -> Value:
        return self.emit(type_, f"load {type_}, {pointer}, align {align}")

    def store(self, value: Value, pointer: Value, align: int = FLOAT_BYTES) -> None:
        self.do(f"store {value}, {pointer}, align {align}")

    def load_masked(self, type_: str, pointer: Value, mask: Value | None, align: int = FLOAT_BYTES) -> Value:
        """Loads the lanes in `mask`; the others are zero and are not read. None loads all lanes."""
        if mask is None:
            return self.load(type_, pointer, align)
        zeros = Value(self, type_, "zeroinitializer")
        return self.machine_call(f"masked.load.{_suffix(type_)}.p0", type_, pointer, self.align(align), mask, zeros)

    def store_masked(self, value: Value, pointer: Value, mask: Value | None, align: int = FLOAT_BYTES) -> None:
        """Stores the lanes in `mask`; the others are not written. None stores all lanes."""
        if mask and mask.text == self.first_lanes(self.index(1), value.lanes).text:
            # with AVX-512, LLVM stores this lane as wide as it was before a truncation: beyond the element's end
            value, mask = self.part(value, 0, 1), None
        if mask is None:
            self.store(value, pointer, align)
            return
        suffix = _suffix(value.type)
        self.module.declare(f"void @llvm.masked.store.{suffix}.p0({value.type}, ptr, i32, {mask.type})")
        self.do(f"call void @llvm.masked.store.{suffix}.p0({value}, {pointer}, i32 {align}, {mask})")

    def word_product(self, value: Value, factor: Value | int) -> Value | None:
        """value * factor, an int32, where both fit an int16 (vpmaddwd); None without an instruction for it."""
        machine, width = self.module.machine, min(value.lanes, self.module.machine.lanes)
        if not machine.has_pairs or width not in PAIRS:
            return None
        sums, words = vector(width, "i32"), vector(2 * width, "i16")
        low = factor & 0xFFFF if isinstance(factor, Value) else self.literal(value.type, factor & 0xFFFF)

        def product(first: int) -> Value:
            pair = (self.cast("bitcast", self.part(side, first, width), words) for side in (value, low))
            return self.machine_call(PAIRS[width], sums, *pair)

        found = [product(first) for first in range(0, value.lanes, width)]
        while len(found) > 1:
            found = [self.shuffle(a, b, range(2 * a.lanes)) for a, b in zip(found[::2], found[1::2], strict=True)]
        return found[0]

    def look_up(self, entries: Sequence[int], index: Value) -> Value:
        """entries[index] as int32; `index` is an int32 within the table."""
        pointers = vector(index.lanes, POINTER)
        at = self.emit(pointers, f"getelementptr i32, ptr {self.module.table(entries)}, {index}")
        if index.lanes == 1:
            return self.load(index.type, at)
        type_, every = index.type, self.literal(vector(index.lanes, BOOL), 1)
        name, nothing = f"masked.gather.{_suffix(type_)}.v{index.lanes}p0", Value(self, type_, "poison")
        return self.machine_call(name, type_, at, self.align(FLOAT_BYTES), every, nothing)

    def look_up_bytes(self, entries: Sequence[int], index: Value) -> Value | None:
        """entries[index] for an unsigned index of 8 bits and entries of 8 bits, by shuffles; None for few lanes."""
        machine, lanes = self.module.machine, index.lanes
        entries = [(entry + 128) % 256 - 128 for entry in entries]
        if machine.look_up_bytes and lanes > 1:
            return self._looked_up_in_halves(entries, index)
        if lanes == 4 * machine.lanes and machine.look_up_parts:
            return self._looked_up_in_parts(entries, index)
        is_register = lanes == 4 * machine.lanes and machine.shuffle_bytes
        return self._looked_up_in_rows(entries, index, machine.shuffle_bytes) if is_register else None

    def _looked_up_in_parts(self, entries: Sequence[int], index: Value) -> Value:
        """By a look-up in each 64 bytes (tbl, tbx); an index loses 64 from part to part."""
        (first, other), size = self.module.machine.look_up_parts, index.lanes
        rows = [self.numbers(entries[at : at + size], "i8") for at in range(0, 256, size)]
        result = self.machine_call(first, index.type, *rows[:4], index)
        for part in (rows[4:8], rows[8:12], rows[12:]):
            index = index - 64
            result = self.machine_call(other, index.type, result, *part, index)
        return result

    def _looked_up_in_halves(self, entries: Sequence[int], index: Value) -> Value:
        """By two look-ups in 128 bytes each (vpermi2b), which ignore the index's highest bit."""
        lanes, size = index.lanes, 64
        whole = index if lanes == size else self.shuffle(index, index, [*range(lanes), *([0] * (size - lanes))])
        parts = [self.numbers(entries[first : first + size], "i8") for first in range(0, 256, size)]
        low, high = (
            self.machine_call(self.module.machine.look_up_bytes, whole.type, a, whole, b)
            for a, b in (parts[:2], parts[2:])
        )
        result = self.select(self.compare("slt", whole, 0), high, low)
        return result if lanes == size else self.shuffle(result, result, range(lanes))

    def _looked_up_in_rows(self, entries: Sequence[int], index: Value, shuffle: str) -> Value:
        """By a shuffle for each row of 16 entries (vpshufb), which gives 0 for negative indices.

        An index in a half of eight rows loses 16 from row to row, and becomes negative after its own row. Rows are
        stored as the exclusive or with the row before, so that those up to its own make up the entry.
        """
        result = self.literal(index.type, 0)
        for half in (0, 128):
            at = index ^ -128 if half else index
            before = [0] * 16
            for first in range(half, half + 128, 16):
                row = list(entries[first : first + 16])
                differences = [a ^ b for a, b in zip(row, before, strict=True)]
                table = self.numbers(differences * (index.lanes // 16), "i8")
                result = result ^ self.machine_call(shuffle, index.type, table, at)
                at = self.intrinsic("ssub.sat", at.type, at, self.literal(at.type, 16))
                before = row
        return result

    def numbers(self, values: Sequence[int], element: str) -> Value:
        """A constant vector."""
        self.module.count(len(values) // NUMBERS_A_LINE)
        text = ", ".join(f"{element} {value}" for value in values)
        return Value(self, vector(len(values), element), f"<{text}>")

    def broadcast(self, pointer: Value, lanes: int) -> Value:
        """The float at `pointer` in every lane."""
        return self.splat(self.load(FLOAT, pointer), lanes)

    # control

    def start_block(self, label: str) -> None:
        self.lines.append(label + ":")
        self.label = label

    def new_label(self, kind: str) -> str:
        self.counter += 1
        return f"{kind}{self.counter}"

    def jump(self, label: str) -> None:
        self.do(f"br label %{label}")

    def enter(self, label: str) -> None:
        """Ends this block; the next one follows it."""
        self.jump(label)
        self.start_block(label)

    def branch(self, condition: Value, if_true: str, if_false: str) -> None:
        self.do(f"br {condition}, label %{if_true}, label %{if_false}")

    def loop(self, count: Value | int, body: Callable[..., Sequence[Value] | None], *carried: Value) -> list[Value]:
        """`for i in range(count)`: body(i, *values) returns the next values; the loop returns the last values.

        The loop runs at least once. For a constant count of one, only the body is emitted.
        """
        if count == 1:
            return list(body(self.index(0), *carried) or ())
        count = self.like(count, self.index(0))
        head, done = self.new_label("loop"), self.new_label("done")
        before = self.label
        self.enter(head)
        position = len(self.lines)
        i = Value(self, INDEX, self.name_value())
        values = [Value(self, v.type, self.name_value()) for v in carried]
        following = list(body(i, *values) or ())
        assert [v.type for v in following] == [v.type for v in carried], self.name
        last = self.label
        following_i = self.emit(INDEX, f"add nuw nsw i64 {i.text}, 1")
        again = self.emit(BOOL, f"icmp ult i64 {following_i.text}, {count.text}")
        self.branch(again, head, done)
        phis = [f"  {i.text} = phi i64 [0, %{before}], [{following_i.text}, %{last}]"]
        phis += [
            f"  {v.text} = phi {v.type} [{initial.text}, %{before}], [{final.text}, %{last}]"
            for v, initial, final in zip(values, carried, following, strict=True)
        ]
        self.lines[position:position] = phis
        self.start_block(done)
        return following

    def repeat(self, count: int, body: Callable[..., Sequence[Value]], *carried: Value) -> Sequence[Value]:
        """Repeats `values = body(i, *values)` `count` times, from the values `carried`; returns the last values."""
        return self.loop(count, body, *carried)

    def when(self, condition: Value, body: Callable[[], object]) -> None:
        """`if condition: body()`."""
        inside, done = self.new_label("then"), self.new_label("done")
        self.branch(condition, inside, done)
        self.start_block(inside)
        body()
        self.enter(done)

    def when_last(self, number: Value, count: int, body: Callable[[], None], last: Callable[[], None]) -> None:
        """`last()` if `number` is count - 1, else `body()`."""
        if count > 1:
            self.when(self.compare("ne", number, count - 1), body)
            self.when(self.compare("eq", number, count - 1), last)
        else:
            last()

    def call(self, name: str, *arguments: Value) -> None:
        """A call of a void function of this module."""
        self.do(f"call void @{name}({', '.join(map(str, arguments))})")

    def finish(self, name: str = "") -> None:
        """Closes the function with `ret void` and adds it to the module, by another name if one is given."""
        self.name = name or self.name
        self.do("ret void")
        self.close()

    def close(self) -> None:
        """Adds the function, whose last block ends in its own terminator, to the module."""
        arguments = ", ".join(map(str, self.parameters))
        attributes = 'noinline nounwind "frame-pointer"="none"'
        head = f"define {self.linkage}{self.result} @{self.name}({arguments}) {attributes} {{"
        self.module.count(len(self.lines) + 1)
        self.module.functions.append("\n".join([head, *self.lines, "}"]))


def _suffix(type_: str) -> str:
    element = element_type(type_)
    letter = {FLOAT: "f32", DOUBLE: "f64", HALF: "f16"}.get(element, element)
    return letter if lanes_of(type_) == 1 else f"v{lanes_of(type_)}{letter}"
