"""Device code as Python expressions: values with operators that emit LLVM IR and PTX into the macro being built.

A macro (`front_end.macro`) receives its arguments as `Value`s, and a `Code` to write with. Python loops are unrolled in
the kernel, and Python numbers become constants. Indices are int32, and never negative where they are divided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from llvmlite import ir
from xxhash import xxh3_64_hexdigest

from jitdelegate.ir.expr import converted
from jitdelegate.ir.types import ELEMENT_TYPES
from jitdelegate.targets.cuda.code.dependent_launch import LAUNCH, MOVE, WAIT

I1, I8, I16, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))
F32, F64, HALF = ir.FloatType(), ir.DoubleType(), ir.HalfType()
VOID = ir.VoidType()
GLOBAL, SHARED = 1, 3
"""Address spaces of NVVM IR."""
TYPES = {"float": F32, "double": F64, "half": HALF, **{f"i{type_.width}": type_ for type_ in (I1, I8, I16, I32, I64)}}
"""Types by LLVM's names."""
FLOATS = {"float32": F32, "float64": F64}
"""Types of numbers that kernels calculate with, by the IR's names."""
PRODUCTS = {F32: "__nv_fmul_rn", F64: "__nv_dmul_rn"}
"""NVIDIA's functions for products that are never part of an FMA."""
RELATIONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
LIBDEVICE = {
    **{
        name: name
        for name in (
            *("copysign", "floor", "ceil", "trunc", "exp", "log", "tanh", "erf", "pow", "atan2", "fma"),
            *("fmod", "fmax", "fmin"),
        )
    },
    "abs": "fabs",
    "round": "rint",
    "sqrt": "fsqrt_rn",
}
"""NVIDIA's float functions, by their names in `ir.expr`; the float32 versions end in "f", except the square root."""


def register(dtype: str) -> Any:
    """The type of one element in registers: one bit for bools; int16 bits for float16, which is only moved."""
    if dtype in FLOATS or dtype == "bool":
        return FLOATS.get(dtype, I1)
    return TYPES[f"i{ELEMENT_TYPES[dtype].bits}"]


class Value:
    """One LLVM value with the operators of its type: an integer, boolean, float32, double or a pointer.

    `//` and `%` are unsigned, `>>` is logical, comparisons of integers are signed. Comparing floats is ordered: False
    where one is NaN.
    """

    __slots__ = ("code", "value")

    def __init__(self, code: Code, value: Any) -> None:
        self.code = code
        self.value = value

    @property
    def is_float(self) -> bool:
        return self.value.type in (F32, F64)

    @property
    def bits(self) -> int:
        """Bits of a number."""
        return size_of(self.value.type) * 8 if self.is_float else int(self.value.type.width)

    def _with(self, other: Any, whole: str, real: str) -> Value:
        code, other = self.code, self.code.like(other, self)
        if real == "fmul" and code.rounds_products and self.is_float:
            return code.call(PRODUCTS[self.value.type], [self, other], self.value.type)
        operation = getattr(code.builder, real if self.is_float else whole)
        return Value(code, operation(self.value, other.value))

    def _compare(self, relation: str, other: Any) -> Value:
        return self.code.compare(("o" if self.is_float else "s") + relation, self, other)

    def __add__(self, other: Any) -> Value:
        return self._with(other, "add", "fadd")

    def __sub__(self, other: Any) -> Value:
        return self._with(other, "sub", "fsub")

    def __mul__(self, other: Any) -> Value:
        return self._with(other, "mul", "fmul")

    def __truediv__(self, other: Any) -> Value:
        return self._with(other, "fdiv", "fdiv")

    def __floordiv__(self, other: Any) -> Value:
        return self._with(other, "udiv", "udiv")

    def __mod__(self, other: Any) -> Value:
        return self._with(other, "urem", "urem")

    def __and__(self, other: Any) -> Value:
        return self._with(other, "and_", "and_")

    def __or__(self, other: Any) -> Value:
        return self._with(other, "or_", "or_")

    def __xor__(self, other: Any) -> Value:
        return self._with(other, "xor", "xor")

    def __lshift__(self, other: Any) -> Value:
        return self._with(other, "shl", "shl")

    def __rshift__(self, other: Any) -> Value:
        return self._with(other, "lshr", "lshr")

    def __radd__(self, other: Any) -> Value:
        return self.code.like(other, self) + self

    def __rsub__(self, other: Any) -> Value:
        return self.code.like(other, self) - self

    def __rmul__(self, other: Any) -> Value:
        return self.code.like(other, self) * self

    def __rtruediv__(self, other: Any) -> Value:
        return self.code.like(other, self) / self

    def __neg__(self) -> Value:
        # NVVM's older dialect has no fneg, so this is -0.0 - x.
        return self.code.like(-0.0 if self.is_float else 0, self) - self

    def __invert__(self) -> Value:
        return Value(self.code, self.code.builder.not_(self.value))

    def __lt__(self, other: Any) -> Value:
        return self._compare("lt", other)

    def __le__(self, other: Any) -> Value:
        return self._compare("le", other)

    def __gt__(self, other: Any) -> Value:
        return self._compare("gt", other)

    def __ge__(self, other: Any) -> Value:
        return self._compare("ge", other)

    def equals(self, other: Any) -> Value:
        """Whether both are equal, as a boolean value."""
        return self._compare("eq", other)

    def __bool__(self) -> bool:
        raise TypeError("a device value has no truth at compile time; use Code.when or Code.select")


class Code:
    """Writes device code at the builder's place.

    Attributes:
        builder: llvmlite's builder, for operations without a method here.
        rounds_products: whether products of floats are rounded before they are added to.
        constants: pointers to memory that no launch writes.
        tensors: pointers that have no value before `await_launches`, with the value that they get then.
        is_waiting: whether `await_launches` is still to come.
    """

    def __init__(self, builder: ir.IRBuilder) -> None:
        self.builder = builder
        self.rounds_products = False
        self.constants: list[Value] = []
        self.tensors: list[tuple[Value, Any]] = []
        self.is_waiting = True

    # constants and conversions

    def integer(self, number: int) -> Value:
        """An int32 constant."""
        return Value(self, I32(number))

    def real(self, number: float) -> Value:
        """A float32 constant; `number` is rounded to float32."""
        return Value(self, ir.Constant(F32, number))

    def boolean(self, truth: bool) -> Value:
        """A boolean constant."""
        return Value(self, I1(int(truth)))

    def constant(self, dtype: str, number: float, lanes: int = 1) -> Value:
        """A number as a value of the IR's type `dtype`, converted as `ir.expr.Cast` does."""
        assert lanes == 1, lanes
        if dtype in FLOATS:
            return Value(self, ir.Constant(FLOATS[dtype], number))
        scalar = converted(np.asarray(number), dtype)
        whole = scalar.view(np.int16) if dtype == "float16" else scalar
        return Value(self, ir.Constant(register(dtype), int(whole)))

    def like(self, operand: Any, example: Value) -> Value:
        """`operand` itself if it is a Value, else the number as a constant of the example's type."""
        if isinstance(operand, Value):
            return operand
        return Value(self, ir.Constant(example.value.type, operand))

    def convert(self, operation: str, value: Value, element: str) -> Value:
        """Converts a value to a type by an LLVM instruction: `sitofp fptosi bitcast zext ...`."""
        return Value(self, getattr(self.builder, operation)(value.value, TYPES[element]))

    def to_integer(self, value: Value, dtype: str) -> Value:
        """A float32 rounded towards zero and clamped to the range of the integer type `dtype`; NaN gives 0, which PTX
        does for 32 bits only."""
        if dtype == "int64":
            (whole,) = self.ptx("cvt.rzi.s64.f32 $0, $1;", "l", [value])
            return self.select(value.equals(value), whole, 0)
        if dtype == "uint32":
            return self.ptx("cvt.rzi.u32.f32 $0, $1;", "r", [value])[0]
        (whole,) = self.ptx("cvt.rzi.s32.f32 $0, $1;", "r", [value])
        if dtype == "int32":
            return whole
        element = ELEMENT_TYPES[dtype]
        limited = self.minimum(self.maximum(whole, element.minimum), element.maximum)
        return self.convert("trunc", limited, f"i{element.bits}")

    def to_float(self, number: Value) -> Value:
        """An int32 as float32."""
        return self.convert("sitofp", number, "float")

    def bits(self, number: Value) -> Value:
        """A float32's bits as int32."""
        return self.convert("bitcast", number, "i32")

    def from_bits(self, number: Value) -> Value:
        """An int32's bits as float32."""
        return self.convert("bitcast", number, "float")

    # choices and control flow

    def select(self, condition: Value, then: Any, otherwise: Any) -> Value:
        """One of two values of the same type; at most one of them may be a Python number."""
        example = then if isinstance(then, Value) else otherwise
        chosen = (self.like(value, example).value for value in (then, otherwise))
        return Value(self, self.builder.select(condition.value, *chosen))

    def compare(self, condition: str, left: Value, right: Any) -> Value:
        """Compares by an LLVM condition: `eq ne slt ult ...` for integers, `oeq une olt uno ...` for floats; `seq` is
        `eq`."""
        right, relation = self.like(right, left), condition[-2:]
        if left.is_float:
            compare = self.builder.fcmp_ordered if condition[0] == "o" else self.builder.fcmp_unordered
        else:
            compare = self.builder.icmp_unsigned if condition[0] == "u" else self.builder.icmp_signed
        return Value(self, compare(RELATIONS.get(relation, condition), left.value, right.value))

    def maximum(self, a: Value, b: Any) -> Value:
        """The larger of two floats or signed integers; NaN in `a` stays NaN."""
        b = self.like(b, a)
        return self.select(a < b, b, a)

    def minimum(self, a: Value, b: Any) -> Value:
        """The smaller of two floats or signed integers; NaN in `a` stays NaN."""
        b = self.like(b, a)
        return self.select(b < a, b, a) if a.is_float else self.select(a < b, a, b)

    def within(self, index: Value, size: Value) -> Value:
        """Whether 0 <= index < size, in one comparison; `size` is not negative."""
        return self.compare("ult", index, size)

    @contextmanager
    def when(self, condition: Value) -> Iterator[None]:
        """The code written in this `with` block runs only where `condition` holds."""
        with self.builder.if_then(condition.value):
            yield

    @contextmanager
    def loop(self, count: Value | int, start: Value | int = 0, step: Value | int = 1) -> Iterator[Value]:
        """A loop in the kernel: its index runs from `start` in steps of `step` while below `count`.

        Values that change from iteration to iteration live in `variables` or in the `carried` loop below.
        """
        with self.carried(count, [], start=start, step=step) as (index, _, _):
            yield index

    @contextmanager
    def carried(
        self, count: Value | int, initial: Sequence[Value], start: Value | int = 0, step: Value | int = 1
    ) -> Iterator[tuple[Value, list[Value], list[Value]]]:
        """A loop that carries values in registers: yields (index, values of this iteration, values for the next one).

        Assign to the elements of the last list; after the loop it holds the final values.
        """
        zero = self.integer(0)
        count, start, step = (self.like(number, zero) for number in (count, start, step))
        builder = self.builder
        before = builder.block
        head = builder.append_basic_block("head")
        body = builder.append_basic_block("body")
        after = builder.append_basic_block("after")
        builder.branch(head)
        builder.position_at_end(head)
        index = builder.phi(I32)
        index.add_incoming(start.value, before)
        phis = [builder.phi(value.value.type) for value in initial]
        for phi, value in zip(phis, initial, strict=True):
            phi.add_incoming(value.value, before)
        builder.cbranch(builder.icmp_signed("<", index, count.value), body, after)
        builder.position_at_end(body)
        current = [Value(self, phi) for phi in phis]
        following = list(current)
        yield Value(self, index), current, following
        latch = builder.block
        index.add_incoming(builder.add(index, step.value), latch)
        for phi, value in zip(phis, following, strict=True):
            phi.add_incoming(value.value, latch)
        builder.branch(head)
        builder.position_at_end(after)
        following[:] = current  # the head's values are those after the last iteration

    def repeat(self, count: int, body: Callable[..., Sequence[Value]], *carried: Value) -> Sequence[Value]:
        """Calls `body(i, *values)` `count` times, each time with the values that it last returned; returns the last
        values."""
        with self.carried(count, carried) as (index, values, following):
            following[:] = body(index, *values)
        return following

    # memory

    def launch_dependents(self) -> None:
        """Lets the launches after this one begin, as soon as all its blocks have come here or ended."""
        self.ptx(LAUNCH, "", [], effects=True)

    def await_launches(self) -> None:
        """Waits for the launches before this one; from here on, tensors may be read and written.

        Every thread waits, so this stands outside of `when` and `loop`. What needs no tensor comes before.
        """
        assert self.is_waiting, "a kernel waits once"
        self.is_waiting = False
        self.ptx(WAIT, "", [], effects=True)
        for pointer, parameter in self.tensors:
            signature = ir.FunctionType(parameter.type, [parameter.type])
            move = ir.InlineAsm(signature, MOVE, "=l,l,~{memory}", side_effect=True)
            pointer.value = self.builder.call(move, [parameter])

    def address(self, base: Value, offset: Value | int, space: int = GLOBAL) -> Any:
        """An i8 pointer `offset` bytes after `base`, which is a global pointer or an int32 address in shared memory."""
        builder = self.builder
        assert base.value is not None, "tensors may be accessed only after await_launches"
        if base.value.type == I32:
            return builder.inttoptr(builder.zext((base + offset).value, I64), I8.as_pointer(SHARED))
        start = base.value
        if start.type != I8.as_pointer(space):
            start = builder.addrspacecast(builder.bitcast(start, I8.as_pointer()), I8.as_pointer(space))
        if isinstance(offset, int) and offset == 0:
            return start
        distance = self.like(offset, self.integer(0))
        return builder.gep(start, [builder.sext(distance.value, I64)])

    def advanced(self, base: Value, index: Value, nbytes: int) -> Value:
        """The global pointer `index` elements of `nbytes` after `base`: one wide multiply-add, which NVVM does not take
        apart. An offset in bytes takes three or four instructions of 32 bits."""
        start = Value(self, self.address(base, 0))
        (moved,) = self.ptx(f"mad.wide.s32 $0, $1, {nbytes}, $2;", "l", [index, start])
        pointer = Value(self, self.builder.inttoptr(moved.value, I8.as_pointer(GLOBAL)))
        if any(base is one for one in self.constants):
            self.constants.append(pointer)
        return pointer

    def kept(self, value: Value) -> Value:
        """An int32 that stays in a register from here on; NVVM would rather compute a short expression again wherever
        it is used, such as in every turn of a loop."""
        return self.ptx("mov.b32 $0, $1;", "r", [value], effects=True)[0]

    def load(self, base: Value, offset: Value | int, type_: Any = F32, count: int = 1) -> list[Value]:
        """`count` neighbouring elements of `type_` from `offset` bytes after `base`, as one access.

        The address is a multiple of `count` elements; `base` is a global pointer or an int32 shared address.
        """
        builder, address = self.builder, self.address(base, offset)
        space = address.type.addrspace
        whole = type_ if count == 1 else ir.VectorType(type_, count)
        loaded = builder.load(builder.bitcast(address, whole.as_pointer(space)))
        loaded.align = count * size_of(type_)
        if count == 1:
            return [Value(self, loaded)]
        return [Value(self, builder.extract_element(loaded, I32(k))) for k in range(count)]

    def load_where(
        self, condition: Value, base: Value, offset: Value | int, words: int = 1, bits: int = 32
    ) -> list[Value]:
        """Neighbouring int32s (or one int16) from `offset` bytes after a global pointer; where the condition does not
        hold, nothing is read and the values are zeros.

        The compiler does not move the loads, so the code written after them computes while they run.
        """
        letter = "r" if bits == 32 else "h"
        unchanging = ".nc" if any(base is one for one in self.constants) else ""
        results = [f"${k}" for k in range(words)]
        vector, group = (f".v{words}", f"{{{', '.join(results)}}}") if words > 1 else ("", "$0")
        text = "".join(f"mov.b{bits} {result}, 0; " for result in results)
        text += f"@${words + 1} ld.global{unchanging}{vector}.b{bits} {group}, [${words}];"
        address = Value(self, self.address(base, offset))
        return self.ptx(text, letter * words, [address, condition], effects=True)

    def store(self, values: Sequence[Value], base: Value, offset: Value | int) -> None:
        """Stores neighbouring elements at `offset` bytes after `base` in one access; aligned as for `load`."""
        builder, address = self.builder, self.address(base, offset)
        space = address.type.addrspace
        type_ = values[0].value.type
        if len(values) == 1:
            whole = values[0].value
        else:
            whole = ir.Constant(ir.VectorType(type_, len(values)), ir.Undefined)
            for k, value in enumerate(values):
                whole = builder.insert_element(whole, value.value, I32(k))
        stored = builder.store(whole, builder.bitcast(address, whole.type.as_pointer(space)))
        stored.align = len(values) * size_of(type_)

    def word_product(self, value: Value, factor: Value | int) -> None:
        """Products of 32 bits are as fast."""

    def look_up(self, entries: Sequence[int], index: Value) -> Value:
        """entries[index] as int32, from a table in global memory; `index` is an int32 within it."""
        builder, type_ = self.builder, ir.ArrayType(I32, len(entries))
        name = f"table_{xxh3_64_hexdigest(repr(tuple(entries)).encode())}"
        table = builder.module.globals.get(name)
        if table is None:
            table = ir.GlobalVariable(builder.module, type_, name, addrspace=GLOBAL)
            table.linkage, table.global_constant, table.align = "internal", True, size_of(I32)
            table.initializer = ir.Constant(type_, list(entries))
        return Value(self, builder.load(builder.gep(table, [I32(0), index.value])))

    def look_up_bytes(self, entries: Sequence[int], index: Value) -> None:
        """There is no faster way than `look_up`."""

    def dynamic_shared(self) -> Value:
        """The int32 address of the launch's dynamic shared memory, a multiple of 128."""
        module = self.builder.module
        name = "dynamic_shared"
        if name in module.globals:
            block = module.globals[name]
        else:
            block = ir.GlobalVariable(module, ir.ArrayType(I8, 0), name, addrspace=SHARED)
            block.linkage = "external"
            block.align = 128
        return Value(self, self.builder.trunc(self.builder.ptrtoint(block, I64), I32))

    def static_shared(self, nbytes: int, name: str) -> Value:
        """The int32 address of `nbytes` of this kernel's shared memory; equal names have the same address."""
        module = self.builder.module
        if name in module.globals:
            block = module.globals[name]
        else:
            block = ir.GlobalVariable(module, ir.ArrayType(I8, nbytes), name, addrspace=SHARED)
            block.linkage = "internal"
            block.align = 128
            block.initializer = ir.Constant(block.value_type, ir.Undefined)
        return Value(self, self.builder.trunc(self.builder.ptrtoint(block, I64), I32))

    # PTX and intrinsic functions

    def ptx(
        self, text: str, results: str, arguments: Sequence[Value], *, effects: bool = False, convergent: bool = False
    ) -> list[Value]:
        """One piece of inline PTX: $0, $1, ... are the results and then the arguments.

        Args:
            results: one letter per result: "f" float32, "r" int32, "h" int16, "l" int64.
            effects: the instruction accesses memory or affects threads, so the compiler must not move it.
            convergent: threads synchronize or exchange values in the instruction, so NVVM must not make it depend on
                further conditions, as NVVM does when it copies code into branches or sinks it to a use of its result.
        """
        types = {"f": F32, "r": I32, "h": I16, "l": I64}
        kinds = [types[letter] for letter in results]
        if not kinds:
            returned = VOID
        else:
            returned = kinds[0] if len(kinds) == 1 else ir.LiteralStructType(kinds)
        constraints = [f"={letter}" for letter in results] + [_letter(value.value.type) for value in arguments]
        constraints += ["~{memory}"] if effects else []
        signature = ir.FunctionType(returned, [value.value.type for value in arguments])
        asm = ir.InlineAsm(signature, text, ",".join(constraints), effects)
        attributes = ("convergent",) if convergent else ()
        called = self.builder.call(asm, [value.value for value in arguments], attrs=attributes)
        if len(kinds) <= 1:
            return [Value(self, called)] if kinds else []
        return [Value(self, self.builder.extract_value(called, k)) for k in range(len(kinds))]

    def call(self, name: str, arguments: Sequence[Value], returned: Any = F32) -> Value:
        """An LLVM intrinsic or libdevice function, by name: call("llvm.fma.f32", [a, b, c])."""
        module = self.builder.module
        signature = ir.FunctionType(returned, [value.value.type for value in arguments])
        function = module.globals.get(name) or ir.Function(module, signature, name)
        return Value(self, self.builder.call(function, [value.value for value in arguments]))

    @property
    def has_half(self) -> bool:
        return True

    def native(self, name: str, *values: Value) -> Value | None:
        """A float function from NVIDIA's library; None if the library does not have it."""
        if name not in LIBDEVICE:
            return None
        type_ = values[0].value.type
        suffix = "f" if type_ == F32 and name != "sqrt" else ""
        function = "dsqrt_rn" if (name, type_) == ("sqrt", F64) else LIBDEVICE[name] + suffix
        return self.call(f"__nv_{function}", values, type_)

    def fma(self, a: Value, b: Any, c: Any) -> Value:
        """a * b + c, rounded once."""
        name = "llvm.fma.f32" if a.value.type == F32 else "llvm.fma.f64"
        return self.call(name, [a, self.like(b, a), self.like(c, a)], a.value.type)

    def sdiv(self, a: Value, b: Value) -> Value:
        """The quotient of signed integers, rounded towards zero; `b` is not 0, and the quotient does not overflow."""
        return Value(self, self.builder.sdiv(a.value, b.value))

    def ashr(self, value: Value, distance: Any) -> Value:
        """`value` shifted right, filled with its sign bit."""
        return Value(self, self.builder.ashr(value.value, self.like(distance, value).value))

    def fshl(self, high: Value, low: Value, distance: Value) -> Value:
        """The upper 32 bits of (high, low) shifted left by 0 to 31."""
        high, low, distance = (self.convert("zext", number, "i64") for number in (high, low, distance))
        return self.convert("trunc", ((high << 32) | low) << distance >> 32, "i32")

    def shuffle(self, value: Value, lane: int) -> Value:
        """The float32 or int32 of a lane, in all of them; all 32 lanes take part."""
        if value.is_float:
            return self.from_bits(self.shuffle(self.bits(value), lane))
        text = "shfl.sync.idx.b32 $0, $1, $2, 31, -1;"
        return self.ptx(text, "r", [value, self.integer(lane)], effects=True, convergent=True)[0]

    def shuffle_xor(self, value: Value, mask: int) -> Value:
        """A float32, int32 or int64 from the lane whose number differs by `mask`; all 32 lanes take part."""
        if value.is_float:
            return self.from_bits(self.shuffle_xor(self.bits(value), mask))
        if value.value.type == I64:
            return self._shuffle_halves(value, mask)
        text = "shfl.sync.bfly.b32 $0, $1, $2, 31, -1;"
        return self.ptx(text, "r", [value, self.integer(mask)], effects=True, convergent=True)[0]

    def _shuffle_halves(self, value: Value, mask: int) -> Value:
        builder = self.builder
        halves = builder.bitcast(value.value, ir.VectorType(I32, 2))
        for lane in map(I32, range(2)):
            half = self.shuffle_xor(Value(self, builder.extract_element(halves, lane)), mask)
            halves = builder.insert_element(halves, half.value, lane)
        return Value(self, builder.bitcast(halves, I64))

    def special(self, register: str) -> Value:
        """A special register as int32: tid.x, ctaid.y, ntid.x, laneid, ..."""
        return self.call(f"llvm.nvvm.read.ptx.sreg.{register}", [], I32)

    def barrier(self) -> None:
        """Waits here for all threads of the block."""
        self.ptx("bar.sync 0;", "", [], effects=True, convergent=True)

    # clusters: blocks that run together and read each other's shared memory

    def cluster_barrier(self) -> None:
        """Waits here for all threads of the cluster. No block may end while another one uses its shared memory."""
        text = "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;"
        self.ptx(text, "", [], effects=True, convergent=True)

    def of_block(self, address: Value, rank: Value | int) -> Value:
        """The address, for `load_remote` and `store_remote`, of the same place in a block of the cluster."""
        return self.ptx("mapa.shared::cluster.u32 $0, $1, $2;", "r", [address, self.like(rank, address)])[0]

    def load_remote(self, address: Value, type_: Any, count: int) -> list[Value]:
        """`count` neighbouring float32s or int32s of a block of the cluster, as one access."""
        letter = "f" if type_ == F32 else "r"
        results = ", ".join(f"${k}" for k in range(count))
        vector, group = (f".v{count}", f"{{{results}}}") if count > 1 else ("", results)
        text = f"ld.shared::cluster{vector}.b32 {group}, [${count}];"
        return self.ptx(text, letter * count, [address], effects=True)

    def store_remote(self, value: Value, address: Value) -> None:
        """Stores a float32 or an int32 in a block of the cluster."""
        self.ptx("st.shared::cluster.b32 [$0], $1;", "", [address, value], effects=True)

    def warp_barrier(self) -> None:
        """Waits here for all threads of the warp; what they stored before can be loaded after it."""
        self.ptx("bar.warp.sync -1;", "", [], effects=True, convergent=True)

    def power_of_two(self, exponent: Value) -> Value:
        """2 ** exponent of a float32, with a relative error of 2 ** -22; denormal results are zeros."""
        return self.ptx("ex2.approx.ftz.f32 $0, $1;", "f", [exponent])[0]

    def larger(self, a: Value, b: Value) -> Value:
        """The larger of two float32; the other one where one is NaN."""
        return self.ptx("max.f32 $0, $1, $2;", "f", [a, b])[0]


def size_of(type_: Any) -> int:
    """Bytes of an element of this type."""
    return {F32: 4, F64: 8}[type_] if type_ in (F32, F64) else int(type_.width) // 8


def _letter(type_: Any) -> str:
    if isinstance(type_, ir.PointerType):
        return "l"
    return {F32: "f", F64: "d", I16: "h", I32: "r", I64: "l", I1: "b"}[type_]


def reduce_tree(values: Sequence[Value], combine: Callable[[Value, Value], Value]) -> Value:
    """All values combined in pairs, pairs of pairs and so on: the shortest chain of dependent operations."""
    level = list(values)
    while len(level) > 1:
        pairs = [combine(a, b) for a, b in zip(level[::2], level[1::2], strict=False)]
        level = pairs + ([level[-1]] if len(level) % 2 else [])
    return level[0]
