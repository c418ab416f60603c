"""The tables of targets and of the levels of CPU code, both read before any target is loaded.

A target's name is its folder's name, and the value of the option and of `Program.target`. A level's name is the value
of the option `cpu_features` and of `Program.features`.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

AUTO = "auto"
EXACT, BFLOAT16, FLOAT16 = "float32", "bfloat16", "float16"
"""Precisions that CPU code has."""
X86_64, AARCH64 = "x86_64", "aarch64"
"""Families of CPUs, as Linux calls them."""
CPU, GPU, NPU = 1, 2, 4
"""LiteRT's flags of hardware."""


class Row:
    """Facts about a target before its folder is loaded: most machines need only one target.

    Attributes:
        automatic: whether "auto" may choose it.
        device_files: names in DEVICES, one of which exists if the machine may have a device; () if every machine has
            one.
        absent: sentence for the report if none exists.
    """

    __slots__ = ("absent", "automatic", "device_files")

    def __init__(self, *, automatic: bool = False, device_files: tuple[str, ...] = (), absent: str = "") -> None:
        self.automatic = automatic
        self.device_files = device_files
        self.absent = absent

    @property
    def hardware(self) -> int:
        """CPU or GPU."""
        return GPU if self.device_files else CPU


DEVICES = "/dev"
ROWS = {
    # the driver's, on Tegra, in WSL
    "cuda": Row(
        automatic=True, device_files=("nvidiactl", "nvmap", "dxg"), absent="a GPU: no NVIDIA device was found in /dev"
    ),
    "cpu": Row(automatic=True),
    "litert": Row(automatic=True),
    "reference": Row(),
}
"""In the order in which "auto" tries them, until one runs on this machine's CPU."""
NAMES = (AUTO, *sorted(ROWS))


class Level:
    """An instruction set that CPU code is compiled for: what the CPU must offer, and what code may use then.

    Attributes:
        name: "generic", or the x86-64 level or the architecture, and what it has more.
        host: the CPUs that have it, as the system calls them; "" for any.
        flags: the system's names of the features that the CPU and the system must offer.
        cpu, attributes: LLVM's CPU name and feature string. The level is named instead of the host's CPU, so that a
            program runs on every CPU of its level. LLVM would split 512-bit vectors on x86-64-v4 if it preferred 256
            bits, and take products of int16 and their sums apart if it were not told that one instruction for both is
            fast.
        lanes: floats in a vector register.
        tiles: rows of the register tile that is 1, 2, ... vectors wide; accumulators, weights and one broadcast fit the
            vector registers, and row addresses fit the general registers.
        avx512_lanes: floats in a vector for AVX-512's own instructions; 0 without AVX-512.
        unpack_tiles: tiles of rows that meet a panel, above which its narrow weights are rather converted once, before
            they are multiplied, than in registers. Measured on x86-64.
        has_free_moves: whether a register becomes zero, or a copy of another one, in no time.
        has_memory_operands: whether vectors are multiplied by what lies in memory, so that it takes no register.
        has_fast_halves: whether some CPUs multiply half vectors in half the time, and no CPU takes longer for them.
        has_fma: whether one instruction computes a * b + c.
        has_half: whether one instruction widens a vector of float16.
        has_half_sums: whether one instruction computes a * b + c of float16.
        has_pairs: whether one instruction multiplies int16 and adds up neighbours.
        multiplies_by_lane: whether multiply-adds take one lane of a vector for all lanes.
        multiplies_long: whether instructions multiply integers to twice their width.
        has_threads: whether workers may wait in a futex, and code is loaded without a linker (Linux).
        narrows: how integers become narrower ones within their limits: by "packs", LLVM's functions for two vectors, or
            by "trunc", its general ones, which become one instruction too; "" where that takes several.
        nearest: LLVM's function that rounds a vector of floats to int32; "" where its general one is as fast.
        plus_pairs: LLVM's functions that add to an int32 the products of two int16, with {} for the bits of a register;
            "" without such an instruction.
        plus_bytes: as `plus_pairs`, the products of four bytes of data and four int8.
        plus_matrices: LLVM's functions that add to two by two int32 the products of two rows of eight bytes and of two
            rows of eight int8; the second one if the bytes have no sign. () without such instructions.
        byte_data: the type of bytes of data that are multiplied by int8; those of the other sign are stored 128 larger
            or smaller.
        shuffle_bytes: LLVM's function that looks up bytes of 16; "" without such an instruction.
        look_up_bytes: LLVM's function that looks up bytes in a table of 128; "" without such an instruction.
        look_up_parts: LLVM's functions that look up bytes in a table of 64; the first one gives 0 for those outside it,
            the second one what there was before. () without such instructions.
        plus_bfloats: as `plus_pairs`, the products of two bfloat16 to a float32; "" also where that takes longer than
            multiply-adds of float32.
        only_for: the precision for which "auto" takes the level, whose code for others is that of the level before; ""
            for any.
        precision: of a level for which code is being made: the type that constant floats are stored in, and that floats
            are multiplied in where the level has an instruction for it.
        slowdown: how many times as long compiled code takes as with AVX-512, beside LiteRT's kernels. Measured on whole
            networks, one thread: x86-64-v3 code takes 1.1 to 1.6 times the time of x86-64-v4 code, and half the vector
            costs LiteRT's kernels no less; generic code takes 2.6 to 5.1 times the time of x86-64-v4 code.
    """

    name = "generic"
    host = cpu = attributes = ""
    flags: tuple[str, ...] = ()
    lanes = 4
    tiles: tuple[int, ...] = (6, 4)
    avx512_lanes = 0
    unpack_tiles = 2
    has_free_moves = has_memory_operands = True
    has_fast_halves = has_fma = has_half = has_half_sums = has_pairs = False
    has_threads = multiplies_by_lane = multiplies_long = False
    narrows = nearest = ""
    plus_pairs = plus_bytes = byte_data = shuffle_bytes = look_up_bytes = plus_bfloats = only_for = ""
    plus_matrices: tuple[str, ...] = ()
    look_up_parts: tuple[str, ...] = ()
    precision = EXACT
    slowdown = 4.0

    def __init__(self, **facts: Any) -> None:
        self.__dict__.update(facts)

    def with_more(self, name: str, flags: tuple[str, ...], attributes: str, **facts: Any) -> Level:
        """A level that needs further flags, has LLVM's further `attributes`, and differs in some facts."""
        own = {"name": name, "flags": self.flags + flags, "attributes": f"{self.attributes},{attributes}".lstrip(",")}
        return Level(**{**self.__dict__, **own, **facts})

    @property
    def multiplies_bfloats(self) -> bool:
        """Whether code multiplies floats as bfloat16."""
        return self.precision == BFLOAT16 and self.plus_bfloats != ""

    @property
    def multiplies_halves(self) -> bool:
        """Whether code multiplies floats as float16."""
        return self.precision == FLOAT16 and self.has_half_sums

    def computing_in(self, precision: str) -> Level:
        """The level, for code in the precision EXACT, BFLOAT16 or FLOAT16."""
        return self if precision == self.precision else Level(**{**self.__dict__, "precision": precision})


GENERIC = Level()
_V3 = Level(
    name="x86-64-v3",
    host="x86_64",
    flags=("fma", "sse4_2", "movbe", "popcnt", "avx", "f16c", "bmi1", "avx2", "bmi2", "abm"),
    cpu="x86-64-v3",
    lanes=8,
    tiles=(8, 6),
    unpack_tiles=9,
    has_fma=True,
    has_half=True,
    has_pairs=True,
    has_threads=True,
    narrows="packs",
    byte_data="uint8",
    shuffle_bytes="x86.avx2.pshuf.b",
    slowdown=1.0,
)
_V4 = _V3.with_more(
    "x86-64-v4",
    ("avx512f", "avx512dq", "avx512cd", "avx512bw", "avx512vl"),
    "-prefer-256-bit",
    cpu="x86-64-v4",
    lanes=16,
    tiles=(10, 10, 8, 6),
    avx512_lanes=16,
    has_fast_halves=True,
    shuffle_bytes="x86.avx512.pshuf.b.512",
)
_VNNI = {"plus_pairs": "x86.avx512.vpdpwssd.{}", "plus_bytes": "x86.avx512.vpdpbusd.{}"}
"""LLVM has one name for AVX-512's and for AVX-VNNI's."""
_V4_VNNI = _V4.with_more("x86-64-v4-vnni", ("avx512_vnni",), "+avx512vnni,+fast-dpwssd", **_VNNI)
_V4_VBMI = _V4_VNNI.with_more(
    "x86-64-v4-vbmi", ("avx512vbmi",), "+avx512vbmi", look_up_bytes="x86.avx512.vpermi2var.qi.512"
)
_AARCH64 = Level(
    name="aarch64",
    host="aarch64",
    flags=("asimd",),
    cpu="cortex-a72",
    attributes="-aes,-crc,-sha2",
    tiles=(12, 8, 7, 5),
    has_fma=True,
    has_half=True,
    has_threads=True,
    multiplies_by_lane=True,
    multiplies_long=True,
    has_free_moves=False,
    has_memory_operands=False,
    byte_data="int8",
    narrows="trunc",
    nearest="aarch64.neon.fcvtns.v4i32.v4f32",
    look_up_parts=("aarch64.neon.tbl4.v16i8", "aarch64.neon.tbx4.v16i8"),
    slowdown=1.0,
)
_DOTPROD = _AARCH64.with_more("aarch64-dotprod", ("asimddp",), "+dotprod", plus_bytes="aarch64.neon.sdot.v4i32.v16i8")
_FP16 = _DOTPROD.with_more("aarch64-fp16", ("fphp", "asimdhp"), "+fullfp16", has_half_sums=True)
_I8MM = _FP16.with_more(
    "aarch64-i8mm",
    ("i8mm", "bf16"),
    "+i8mm,+bf16",
    plus_bfloats="aarch64.neon.bfdot.v4f32.v8bf16",
    plus_matrices=("aarch64.neon.smmla.v4i32.v16i8", "aarch64.neon.usmmla.v4i32.v16i8"),
)
LEVELS = {
    level.name: level
    for level in (
        GENERIC,
        _AARCH64,
        _DOTPROD,
        _FP16,
        _I8MM,
        _V3,
        _V3.with_more("x86-64-v3-vnni", ("avx_vnni",), "+avxvnni,+fast-dpwssd", **_VNNI),
        _V4,
        _V4_VNNI,
        _V4_VBMI,
        # only AMD's CPUs have sse4a; Intel's take the time of four multiply-adds for one of these instructions, which
        # does the work of two
        _V4_VBMI.with_more(
            "x86-64-v4-bf16",
            ("avx512_bf16", "sse4a"),
            "+avx512bf16",
            plus_bfloats="x86.avx512bf16.dpbf16ps.{}",
            only_for=BFLOAT16,
        ),
    )
}
"""Levels by name, the fastest last; "auto" takes the last one that the CPU offers, and that is for the precision."""
