"""What a compiled program depends on, as named parts, so that a miss can be explained part by part."""

from __future__ import annotations

import os
import sys

from xxhash import xxh3_128_hexdigest

from jitdelegate.program.generator_digest import GENERATOR_DIGEST
from jitdelegate.program.layout import FORMAT_VERSION

TYPE_CHECKING = False
if TYPE_CHECKING:
    Parts = tuple[tuple[str, str], ...]
    Shapes = tuple[tuple[int, ...], ...]
    Values = tuple[tuple[int, tuple[int, ...]], ...]

MODEL, TOKEN, TOOLCHAIN = "model", "token", "toolchain"
FEATURES, MULTIPROCESSORS, PRECISION, PROFILE = "features", "multiprocessors", "precision", "profile"
SUBGRAPH, SHAPES, VALUES, HOST, NODES = "subgraph", "shapes", "values", "host", "nodes"
SUFFIX = ".jitd"
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")
_LONGEST_PREFIX = 64
_VERSION_NAMES = ("version_version", "__version__", "version")
_LARGEST_VERSION_FILE = 1 << 16

CUDA, ANY = "cuda", "any"
NUMBA_CUDA = "numba_cuda"
NUMBA_CUDA_VERSIONS = "0.30."
"""How the versions of numba-cuda begin whose inner parts the code generators know."""
CUDA_BINDINGS = "cuda_bindings"
"""Says which CUDA toolkit's libraries are loaded: those of its own major number."""
_CUDA_PACKAGES = {
    "12": (NUMBA_CUDA, "numba", "llvmlite", "nvidia_cuda_nvcc_cu12", "nvidia_nvjitlink_cu12"),
    "13": (NUMBA_CUDA, "numba", "llvmlite", "nvidia_nvvm", "nvidia_nvjitlink"),
}
"""What makes NVVM IR, PTX and binaries, by the toolkit's major number; the last one makes the binaries."""
_BINARIES = "nvidia-nvjitlink"
_NAMED_PACKAGES = {CUDA_BINDINGS, *(name for names in _CUDA_PACKAGES.values() for name in names)}
_METADATA_SUFFIX = ".dist-info"


class Key:
    """Named parts in a fixed order.

    Attributes:
        parts: (name, value) pairs; the same go into the program.
        token: the user's name for the model, None where the fingerprint names it.
    """

    __slots__ = ("parts", "token")

    def __init__(self, parts: Parts, token: str | None = None) -> None:
        self.parts = parts
        self.token = token

    def part(self, name: str) -> str:
        """The value of a part, "" where there is none of that name."""
        return dict(self.parts).get(name, "")

    @property
    def subgraph(self) -> int:
        """The subgraph that the program computes."""
        return int(self.part(SUBGRAPH) or 0)

    @property
    def shapes(self) -> Shapes:
        """The shapes of the program's inputs, () for those that the file says."""
        return tuple(
            tuple(int(size) for size in shape.split("x") if size) for shape in self.part(SHAPES).split(";")[:-1]
        )

    @property
    def values(self) -> Values:
        """(position, elements) of the inputs whose values the program is compiled for."""
        pairs = (text.partition("=") for text in self.part(VALUES).split(";")[:-1])
        return tuple(
            (int(place), tuple(int(number) for number in numbers.split(",") if number)) for place, _, numbers in pairs
        )

    @property
    def gpu(self) -> str:
        """The kind of GPU that the program is for, as "sm_90:132"; for "sm_90" alone where no part says more."""
        return ":".join(part for part in (self.part(FEATURES), self.part(MULTIPROCESSORS)) if part)

    @property
    def hosted(self) -> bool:
        """Whether the program is one for LiteRT's own interpreter."""
        return bool(self.part(HOST))

    @property
    def nodes(self) -> tuple[int, ...]:
        """The operators that one partition of the program has to be made of; () where the compiler groups them."""
        return tuple(int(number) for number in self.part(NODES).split(",") if number)

    def digest(self) -> str:
        """xxh3-128 over the parts that name the entry, as 32 hex digits.

        The toolchain is left out, so that a program of another compiler is found, told apart and replaced. So is the
        fingerprint of a model that a token names: the stored one is compared with it.
        """
        left_out = (TOOLCHAIN,) if self.token is None else (TOOLCHAIN, MODEL)
        return xxh3_128_hexdigest(_encode(tuple(part for part in self.parts if part[0] not in left_out)))

    def entry_name(self) -> str:
        """The entry's file name: the token or fingerprint as far as it is plain ASCII, and the digest."""
        shown = self.part(MODEL) if self.token is None else self.token
        prefix = "".join(letter if letter in _PLAIN else "_" for letter in shown[:_LONGEST_PREFIX])
        return f"{prefix or '_'}-{self.digest()}{SUFFIX}"

    def changed(self, name: str, value: str) -> Key:
        """The same with another value of a part."""
        return Key(tuple((each, value if each == name else found) for each, found in self.parts), self.token)

    def difference(self, found: Parts) -> tuple[str, str, str] | None:
        """(name, found, expected) of the first part that differs from `found`, None where none does.

        A toolchain that is not installed here ("") accepts every other.
        """
        values = dict(found)
        for name, expected in self.parts:
            if name == TOOLCHAIN and not expected:
                continue
            if values.get(name, "") != expected:
                return name, values.get(name, ""), expected
        return None


def model_key(
    *,
    fingerprint: str,
    target: str,
    features: str = "",
    loader: str = "none",
    token: str | None = None,
    options: Parts = (),
    toolchain: str | None = None,
) -> Key:
    """The key of one model compiled one way.

    Args:
        fingerprint: of the model's content.
        target, features, loader: as in `Program`.
        token: the user's name for the model.
        options: further (name, value) pairs that change the code.
        toolchain: None asks what is installed.
    """
    if token is not None:
        token = token.encode("utf-8", "backslashreplace").decode()  # file names may hold what is no Unicode
    parts = (
        (MODEL, fingerprint),
        *(((TOKEN, token),) if token is not None else ()),
        ("format", str(FORMAT_VERSION)),
        ("generators", GENERATOR_DIGEST),
        ("target", target),
        (FEATURES, features),
        ("loader", loader),
        ("machine", _machine(target)),
        *options,
        (TOOLCHAIN, installed_toolchain(target) if toolchain is None else toolchain),
    )
    return Key(parts, token)


def variant_parts(
    subgraph: int, shapes: Shapes = (), values: Values = (), *, hosted: bool = False, nodes: tuple[int, ...] = ()
) -> Parts:
    """The parts that tell a model's further programs from its main one, which has none of them.

    Args:
        subgraph: the one that the program computes.
        shapes: of its inputs; () for those that the file says. f32[2,3] and a scalar read "2x3;;".
        values: (position, elements) of the inputs that decide shapes. [4, -1] in the second input reads "1=4,-1;".
        hosted: whether it is one for LiteRT's own interpreter.
        nodes: the operators that LiteRT puts together, where the compiler would not.
    """
    which = ((SUBGRAPH, str(subgraph)),) if subgraph else ()
    text = "".join(f"{'x'.join(map(str, shape))};" for shape in shapes)
    decided = "".join(f"{position}={','.join(map(str, numbers))};" for position, numbers in values)
    host, grouped = "litert" if hosted else "", ",".join(map(str, nodes))
    named = ((SHAPES, text), (VALUES, decided), (HOST, host), (NODES, grouped))
    return (*which, *((name, value) for name, value in named if value))


def _machine(target: str) -> str:
    """System, CPU family and pointer bits: directories may be shared by machines that cannot run each other's code.

    What runs on a GPU does not depend on them, so that it can be compiled elsewhere.
    """
    if target == CUDA:
        return ANY
    family = os.uname().machine if hasattr(os, "uname") else os.environ.get("PROCESSOR_ARCHITECTURE", "")
    return f"{sys.platform} {family} {sys.maxsize.bit_length() + 1}"


def installed_toolchain(target: str = "cpu") -> str:
    """The compiler's packages with their versions, found without importing them; "" where they are not all there.

    For the CPU that is `llvmlite 0.50.0`: it holds its LLVM, so its version says both. For CUDA it is what makes NVVM
    IR, PTX and binaries, of the CUDA toolkit whose bindings are installed. A numba-cuda that this version does not
    compile with counts as none: programs that were compiled elsewhere are taken as they are.
    """
    if target == CUDA:
        return _cuda_toolchain()
    for folder in sys.path:
        version = _version(os.path.join(folder or ".", "llvmlite", "_version.py"))
        if version:
            return f"llvmlite {version}"
    return ""


def _cuda_toolchain() -> str:
    """From the names of the packages' metadata, one listing per folder."""
    versions: dict[str, str] = {}
    for folder in sys.path:
        for name, version in _metadata(folder or "."):
            versions.setdefault(name, version)
    needed = _CUDA_PACKAGES.get(versions.get(CUDA_BINDINGS, "").partition(".")[0], ())
    if not needed or not versions.keys() >= {*needed} or not versions[NUMBA_CUDA].startswith(NUMBA_CUDA_VERSIONS):
        return ""
    return ", ".join(f"{name.replace('_', '-')} {versions[name]}" for name in needed)


def cuda_major(toolchain: str) -> int:
    """The major number of the CUDA toolkit that makes a toolchain's binaries, 0 where it makes none for GPUs."""
    name, _, version = toolchain.rpartition(", ")[2].partition(" ")
    major = version.partition(".")[0]
    return int(major) if name.startswith(_BINARIES) and major in _CUDA_PACKAGES else 0


def _metadata(folder: str) -> list[tuple[str, str]]:
    """Name and version of the packages of the CUDA toolchain whose metadata lie in `folder`."""
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    found = (name.removesuffix(_METADATA_SUFFIX).partition("-") for name in names if name.endswith(_METADATA_SUFFIX))
    return [(name, version) for name, _, version in found if name in _NAMED_PACKAGES]


def _version(path: str) -> str:
    """The version in versioneer's `path`, "" where there is none."""
    try:
        with open(path, "rb") as file:
            text = file.read(_LARGEST_VERSION_FILE).decode("utf-8", "replace")
    except OSError:
        return ""
    for line in text.splitlines():
        name, _, value = line.partition("=")
        if name.strip() in _VERSION_NAMES:
            return value.strip().strip("'\"")
    return ""


def _encode(parts: Parts) -> bytes:
    """Each text with its length before it, so that no two lists of parts look alike."""
    encoded = bytearray()
    for part in parts:
        for text in part:
            data = text.encode()
            encoded += len(data).to_bytes(8, "little") + data
    return bytes(encoded)
