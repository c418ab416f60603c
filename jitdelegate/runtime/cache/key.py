"""Cache keys: a model's fingerprint, and named parts for all else that a program depends on, so that a miss can be
explained."""

from __future__ import annotations

import os
import sys

from xxhash import xxh3_64_hexdigest, xxh3_128, xxh3_128_hexdigest

from jitdelegate.base.targets import AARCH64, X86_64
from jitdelegate.program.generator_digest import GENERATOR_DIGEST
from jitdelegate.program.program import FORMAT_VERSION
from jitdelegate.runtime.cache.directory import close_quietly

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from _typeshed import ReadableBuffer

    PathOrBytes = str | os.PathLike[str] | ReadableBuffer
    Parts = tuple[tuple[str, str], ...]
    Shapes = tuple[tuple[int, ...], ...]
    Values = tuple[tuple[int, tuple[int, ...]], ...]

MODEL, TOKEN, TOOLCHAIN = "model", "token", "toolchain"
FORMAT, GENERATORS, TARGET, FEATURES = "format", "generators", "target", "features"
TUNING, TUNED = "tuning", "tuned"
PRECISION, BOUND, INPUTS, CHOSEN = "precision", "precision bound", "precision inputs", "chosen precision"
SETTLED = (TOOLCHAIN, TUNED, CHOSEN)
"""Parts that the compiler settles. A key without a value for one accepts every value."""
SUBGRAPH, SHAPES, VALUES, HOST, NODES = "subgraph", "shapes", "values", "host", "nodes"
SUFFIX = ".jitd"
_VARIANTS = (SHAPES, VALUES, NODES)
VARIANTS = (SUBGRAPH, SHAPES, VALUES, HOST, NODES)
"""The parts that the model's main program lacks."""
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")
_LONGEST_PREFIX = 64
_TOOLCHAIN_DIGITS = 8
_FAMILIES = {"AMD64": X86_64, "ARM64": AARCH64, "arm64": AARCH64}
"""What systems call CPUs -> what Linux calls them."""
ALWAYS_HASHED = 1 << 24
"""Largest file, in bytes, that is always hashed. In a fresh process, 16 MB in the page cache take 4 ms, and nearly all
models are smaller; a remembered fingerprint is only as good as the time stamps."""
_HASHED_AT_ONCE = 1 << 17
"""Bytes: larger buffers take longer to make resident, smaller ones more calls. 16 MB take a tenth less than by twice as
many bytes at once."""


def fingerprint(path_or_bytes: PathOrBytes, *, large: Callable[[int], str] | None = None) -> str:
    """xxh3-128 of the content as 32 hex digits; equal contents have equal fingerprints, wherever they come from.

    Args:
        path_or_bytes: a file, of which no copy is kept, or the content itself.
        large: gives the fingerprint of an open file of more than ALWAYS_HASHED bytes, which it may remember.
    Raises:
        OSError: the file cannot be read.
        ValueError: the path has a null character.
        TypeError: it is neither a path nor bytes.
    """
    if not isinstance(path_or_bytes, (str, os.PathLike)):
        return xxh3_128_hexdigest(path_or_bytes)
    descriptor = os.open(path_or_bytes, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if large is None or os.fstat(descriptor).st_size <= ALWAYS_HASHED:
            return hash_file(descriptor)
        return large(descriptor)
    finally:
        close_quietly(descriptor)


def hash_file(descriptor: int) -> str:
    """The fingerprint of what is left to read of an open file.

    Reads through a small buffer: it stays in the CPU's cache, and the file may shrink meanwhile. In a fresh process
    this takes no longer than mapping the file.
    """
    state, piece = xxh3_128(), bytearray(_HASHED_AT_ONCE)
    view = memoryview(piece)
    while count := os.readv(descriptor, [piece]):
        state.update(view[:count])
    return state.hexdigest()


class Key:
    """Named parts in a fixed order.

    Attributes:
        parts: (name, value) pairs; the same go into the program.
        token: the user's name for the model; None where the fingerprint names it.
    """

    __slots__ = ("parts", "token")

    def __init__(self, parts: Parts, token: str | None = None) -> None:
        self.parts = parts
        self.token = token

    def part(self, name: str) -> str:
        """The value of a part; "" if there is no such part."""
        return dict(self.parts).get(name, "")

    @property
    def subgraph(self) -> int:
        """The subgraph that the program computes."""
        return int(self.part(SUBGRAPH) or 0)

    @property
    def shapes(self) -> Shapes:
        """The shapes of the program's inputs; () for the file's shapes."""
        return tuple(
            tuple(int(size) for size in shape.split("x") if size) for shape in self.part(SHAPES).split(";")[:-1]
        )

    @property
    def values(self) -> Values:
        """(position, elements) pairs of the shape inputs that the program is specialized for."""
        pairs = (text.partition("=") for text in self.part(VALUES).split(";")[:-1])
        return tuple(
            (int(position), tuple(int(number) for number in numbers.split(",") if number))
            for position, _, numbers in pairs
        )

    @property
    def cpu(self) -> str:
        """The family of the CPU that the program runs on, or beside."""
        words = self.part("machine").split()
        return words[1] if len(words) > 1 else words[0] if words else ""

    @property
    def hosted(self) -> bool:
        """Whether the program is for LiteRT's own interpreter."""
        return bool(self.part(HOST))

    @property
    def nodes(self) -> tuple[int, ...]:
        """The operators that the program's partition must consist of; () where the compiler groups them."""
        return tuple(int(number) for number in self.part(NODES).split(",") if number)

    def digest(self) -> str:
        """xxh3-128 over the parts that the compiler does not settle, as 32 hex digits."""
        return xxh3_128_hexdigest(_encode(tuple(part for part in self.parts if part[0] not in SETTLED)))

    def entry_beginning(self) -> str:
        """What the names of its entries by all toolchains begin with: the ASCII part of the token or fingerprint, and
        the digest. What was found by measuring names no entry, because it is known only after it."""
        shown = self.part(MODEL) if self.token is None else self.token
        prefix = "".join(letter if letter in _PLAIN else "_" for letter in shown[:_LONGEST_PREFIX])
        return f"{prefix or '_'}-{self.digest()}"

    def entry_name(self) -> str:
        """The entry's file name: its beginning, and digits for the toolchain, so that the programs of several live side
        by side."""
        toolchain = self.part(TOOLCHAIN)
        made_by = xxh3_64_hexdigest(toolchain.encode())[:_TOOLCHAIN_DIGITS] if toolchain else ""
        return f"{self.entry_beginning()}{made_by}{SUFFIX}"

    def changed(self, name: str, value: str) -> Key:
        """A copy with another value of one part."""
        return Key(tuple((part, value if part == name else current) for part, current in self.parts), self.token)

    def without(self, *names: str) -> Key:
        """A copy without these parts."""
        return Key(tuple(part for part in self.parts if part[0] not in names), self.token)

    def tuned(self, digests: Sequence[str]) -> Key:
        """A copy that has the digests of the tuned kernels in its program, those of several partitions as one."""
        if not self.part(TUNING):
            return self
        return self.changed(TUNED, digests[0] if len(digests) == 1 else xxh3_128_hexdigest(" ".join(digests).encode()))

    @property
    def weight_sources(self) -> tuple[Key, ...]:
        """The programs whose weights this one may share: the model's main program, and that of the same
        subgraph for the file's shapes. Both are compiled before it, so that its bytes do not depend on other ones."""
        further = [name for name in (SUBGRAPH, *_VARIANTS) if self.part(name)]
        left_out = [further, further[1:]] if self.part(SUBGRAPH) else [further]
        return tuple(self.without(*names) for names in left_out if names)

    def difference(self, other: Parts) -> tuple[str, str, str] | None:
        """(name, found, expected) of the first part that differs from `other`; None where none does.

        A missing toolchain ("") accepts every other, and so does what was not measured yet.
        """
        values = dict(other)
        for name, expected in self.parts:
            if name in SETTLED and not expected:
                continue
            if values.get(name, "") != expected:
                return name, values.get(name, ""), expected
        known = dict(self.parts)
        return next(((name, value, "") for name, value in other if name not in known), None)


class KeyParts:
    """The parts of a key that depend on the device and its compilers.

    Attributes:
        target, features, loader: as in `Program`.
        machine: system, CPU family and pointer bits of the code; of code for a GPU, the family of the CPU beside it,
            whose LiteRT's results those of quantized models agree with.
        toolchain: the compiler's packages with versions; "" where one is missing, or none is needed.
        options: further (name, value) pairs that change the code.
    """

    __slots__ = ("features", "loader", "machine", "options", "target", "toolchain")

    def __init__(
        self, target: str, features: str, loader: str, machine: str, *, toolchain: str, options: Parts = ()
    ) -> None:
        self.target = target
        self.features = features
        self.loader = loader
        self.machine = machine
        self.toolchain = toolchain
        self.options = options


def stored_key(parts: Parts) -> Key:
    """The key of a program that was read, by its parts."""
    return Key(parts, dict(parts).get(TOKEN))


def model_key(fingerprint: str, own: KeyParts, *, token: str | None = None, options: Parts = ()) -> Key:
    """The key of one model compiled one way.

    Args:
        fingerprint: of the model's content.
        own: the parts that depend on the device.
        token: the user's name for the model.
        options: further (name, value) pairs that change the code.
    """
    if token is not None:
        token = token.encode("utf-8", "backslashreplace").decode()  # file names may not be Unicode
    parts = (
        (MODEL, fingerprint),
        *(((TOKEN, token),) if token is not None else ()),
        (FORMAT, str(FORMAT_VERSION)),
        (GENERATORS, GENERATOR_DIGEST),
        (TARGET, own.target),
        (FEATURES, own.features),
        ("loader", own.loader),
        ("machine", own.machine),
        *own.options,
        *options,
        (TOOLCHAIN, own.toolchain),
    )
    return Key(parts, token)


def variant_parts(
    subgraph: int, shapes: Shapes = (), values: Values = (), *, hosted: bool = False, nodes: tuple[int, ...] = ()
) -> Parts:
    """The key parts of a model's further programs, which its main program lacks.

    Args:
        subgraph: the subgraph of the program.
        shapes: of its inputs; () for the file's shapes. f32[2,3] and a scalar are written "2x3;;".
        values: (position, elements) of shape inputs. [4, -1] in the second input is written "1=4,-1;".
        hosted: whether the program is for LiteRT's own interpreter.
        nodes: the operators of one partition, where LiteRT groups them differently from the compiler.
    """
    which = ((SUBGRAPH, str(subgraph)),) if subgraph else ()
    text = "".join(f"{'x'.join(map(str, shape))};" for shape in shapes)
    decided = "".join(f"{position}={','.join(map(str, numbers))};" for position, numbers in values)
    host, grouped = "litert" if hosted else "", ",".join(map(str, nodes))
    named = ((SHAPES, text), (VALUES, decided), (HOST, host), (NODES, grouped))
    return (*which, *((name, value) for name, value in named if value))


def this_cpu() -> str:
    """The family of this machine's CPU."""
    own = os.uname().machine if hasattr(os, "uname") else os.environ.get("PROCESSOR_ARCHITECTURE", "")
    return _FAMILIES.get(own, own)


def this_machine() -> str:
    """System, CPU family and pointer bits: directories may be shared by machines that cannot run each other's code."""
    return f"{sys.platform} {this_cpu()} {sys.maxsize.bit_length() + 1}"


def machine_with(cpu: str) -> str:
    """`this_machine` on Linux with a CPU of a family with 64 bits."""
    return f"linux {cpu} 64"


def _encode(parts: Parts) -> bytes:
    """The parts with length prefixes, so that different lists of parts have different bytes."""
    encoded = bytearray()
    for part in parts:
        for text in part:
            data = text.encode()
            encoded += len(data).to_bytes(8, "little") + data
    return bytes(encoded)
