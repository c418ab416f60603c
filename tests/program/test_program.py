"""Programs survive the file, and nothing else does."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from typing import Any

import pytest
from xxhash import xxh3_128_digest

from jitdelegate.errors import ProgramError
from jitdelegate.program.cubin import CUDA_MACHINE, MAGIC
from jitdelegate.program.launch_list import unpack
from jitdelegate.program.program import (
    HEADER,
    HEADER_BYTES,
    Kernel,
    Launch,
    Operator,
    Port,
    Program,
    Signature,
    State,
)
from jitdelegate.program.read import read, verify_weights
from jitdelegate.program.write import parts, write
from tests.child import answer_of

HEADER_OF_CUBIN = struct.pack("<16sHHIQQQIHHHHHH", MAGIC, 2, CUDA_MACHINE, 1, 0, 0, 0, 0, 64, 56, 0, 64, 0, 0)
"""A whole binary, of nothing."""


def full_program() -> Program:
    """A program with something in every field."""
    image = Port(name="image", index=0, shape=(1, 2, 2, 3), shape_signature=(-1, 2, 2, 3), dtype="float32", nbytes=48)
    scores = Port(
        name="scores \N{GREEK SMALL LETTER ALPHA}",
        index=7,
        shape=(1, 4),
        dtype="int8",
        nbytes=4,
        scales=(0.1, 0.25),
        zero_points=(-3, 1 << 40),
        axis=1,
    )
    return Program(
        key=(("model", "0123"), ("token", ""), ("target", "cpu")),
        target="cpu",
        features="x86-64-v3",
        loader="flat",
        inputs=(image,),
        outputs=(scores,),
        signatures=(Signature(key="serve", graph=1, inputs=(("x", 0),), outputs=(("y", 7), ("z", 7))),),
        operators=(
            Operator(index=0, op="CONV_2D", place="cpu", kernel=0, execution="integer"),
            Operator(index=1, op="CUSTOM", place="litert", reason="custom ops are not compiled"),
        ),
        kernels=(Kernel(name="conv_0", form="Contract", chunks=8),),
        arena_bytes=1 << 33,
        scratch_bytes=4096,
        sync_bytes=64,
        states=(
            State(name="cell", nbytes=120, initial=5000, is_resource=1),
            State(name="hidden", nbytes=8, index=3, shape=(1, 2), dtype="float32"),
        ),
        aliases=((2, 2), (1, 1)),
        entries=(("run", 0), ("stop", 3), ("work", 2)),
        code=b"\xc3" * 5000,
        weights=bytes(range(256)) * 20,
        num_subgraphs=2,
    )


def cuda_program() -> Program:
    """A program for a GPU with something in every field that only such programs have."""
    image = Port(name="image", index=0, shape=(1, 4), dtype="float32", nbytes=16)
    scores = Port(name="scores", index=1, shape=(1, 2), dtype="float32", nbytes=8)
    kernel = Kernel(
        name="contract_0",
        form="Contract",
        chunks=2,
        threads=128,
        registers=96,
        spill_bytes=8,
        stack_bytes=16,
        shared_bytes=4096,
    )
    return Program(
        key=(("model", "0123"), ("target", "cuda")),
        target="cuda",
        features="sm_90",
        loader="cubin",
        inputs=(image,),
        outputs=(scores,),
        operators=(Operator(index=0, op="CONV_2D", place="cuda", kernel=0),),
        kernels=(kernel, Kernel(name="map_0", form="Map", chunks=1, threads=256)),
        arena_bytes=512,
        entries=(("contract_0", 0), ("map_0", 64)),
        launches=(
            launch(),
            Launch(kernel=1, grid=(1, 1, 1), block=(1, 1, 1), kinds="p", values=(768,)),
            Launch(kernel=0, grid=((1 << 31) - 1, 65535, 65535), block=(1, 16, 64), kinds="a", values=(512,)),
        ),
        input_offsets=(512, 496),
        output_offsets=(768, 100),
        states=(State(name="cell", nbytes=16),),
        code=HEADER_OF_CUBIN + HEADER_OF_CUBIN.ljust(256, b"\0"),
        weights=bytes(100),
    )


def launch(**changes: Any) -> Launch:
    """A launch with an argument of every kind."""
    values = {
        "kernel": 0,
        "grid": (7, 2, 3),
        "block": (32, 4, 1),
        "shared_bytes": 49152,
        "kinds": "awif",
        "values": (256, 100, -5, 0x3F800000),
    }
    return Launch(**{**values, **changes})


def small_content() -> bytes:
    """A program's bytes whose every bit a test can flip."""
    return write(Program(key=(("model", "01"),), target="cpu", loader="flat", code=b"\xc3", weights=b"weights"))


def seal(content: bytearray) -> bytes:
    """The same bytes with all hashes right: what an attacker or a bug in the writer could hand over."""
    table, code, weights = (HEADER.unpack_from(content)[at] for at in (4, 6, 8))
    struct.pack_into("<16s", content, HEADER.size - 32, xxh3_128_digest(content[table:code]))
    struct.pack_into("<16s", content, HEADER.size - 16, xxh3_128_digest(content[code:weights]))
    content[HEADER.size : HEADER_BYTES] = xxh3_128_digest(content[: HEADER.size])
    return bytes(content)


@pytest.mark.parametrize("make", [full_program, cuda_program])
def test_a_program_is_read_as_it_was_written(make: Callable[[], Program]) -> None:
    written = make()
    found = read(write(written))
    verify_weights(found)
    written.weights_hash = found.weights_hash
    assert found == written


def test_an_empty_program_is_read_as_it_was_written() -> None:
    found = read(write(Program(key=(), target="litert")))
    assert (found.target, found.loader, len(found.code), len(found.weights)) == ("litert", "none", 0, 0)
    verify_weights(found)


@pytest.mark.parametrize(("size", "unit"), [(10_000, 64), (1 << 16, 4096)])
def test_segments_are_views_and_only_weights_that_may_be_mapped_begin_at_a_page(size: int, unit: int) -> None:
    program = full_program()
    program.weights = bytes(size)
    content = write(program)
    found = read(content)
    table, code, weights = ((number, HEADER.unpack_from(content)[number]) for number in (4, 6, 8))
    ends = [at + HEADER.unpack_from(content)[number + 1] for number, at in (table, code)]
    assert code[1] == -(-ends[0] // 64) * 64 and weights[1] == -(-ends[1] // unit) * unit
    assert isinstance(found.weights, memoryview) and found.weights.obj is content and found.weights.readonly


def test_launches_are_one_vector_of_integers_to_the_reader() -> None:
    program = cuda_program()
    alone = len(write(program)) - len(program.weights)
    program.launches *= 20
    kernels, values = 60, 20 * (4 + 1)
    assert len(write(program)) - len(program.weights) - alone <= 8 * (9 * kernels + 2 * values) + 4096


def full_content() -> str:
    return write(full_program()).hex()


@pytest.mark.parametrize("seed", ["0", "1"])
def test_equal_programs_have_equal_bytes_in_every_process(seed: str) -> None:
    other = answer_of(full_content, PYTHONHASHSEED=seed)
    assert other == full_content()


def test_every_flipped_bit_is_found() -> None:
    content = bytearray(small_content())
    for bit in range(8 * len(content)):
        content[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ProgramError):
            verify_weights(read(content))
        content[bit // 8] ^= 1 << bit % 8
    verify_weights(read(content))


def test_every_truncation_and_every_extension_is_found() -> None:
    content = small_content()
    for length in range(len(content)):
        with pytest.raises(ProgramError):
            read(content[:length])
    with pytest.raises(ProgramError, match="header says"):
        read(content + b"\0")


@pytest.mark.parametrize("make", [full_program, cuda_program])
def test_a_damaged_table_under_right_hashes_raises_nothing_but_program_error(make: Callable[[], Program]) -> None:
    content, chance = bytearray(write(make())), random.Random(5)
    table_end = HEADER_BYTES + HEADER.unpack_from(content)[5]
    refused = 0
    for _ in range(3000):
        damaged = bytearray(content)
        for _ in range(chance.randint(1, 4)):
            damaged[chance.randrange(HEADER_BYTES, table_end)] = chance.randrange(256)
        try:
            found = read(seal(damaged))
            assert found.operators is not None and found.kernels is not None
        except ProgramError:
            refused += 1
    assert refused > 300


def test_a_damaged_header_under_right_hashes_raises_nothing_but_program_error() -> None:
    content, chance = bytearray(write(full_program())), random.Random(6)
    for _ in range(2000):
        damaged = bytearray(content)
        at = 16 + 8 * chance.randrange(7)
        value = chance.choice([0, 1, 120, 4096, 1 << 31, 1 << 32, (1 << 63) - 1, (1 << 64) - 1, chance.getrandbits(64)])
        struct.pack_into("<Q", damaged, at, value)
        try:
            reseal = damaged[: HEADER.size] + xxh3_128_digest(damaged[: HEADER.size])
            read(bytes(reseal) + bytes(damaged[HEADER_BYTES:]))
        except ProgramError:
            continue
        assert damaged == content


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target": "litert"}, "a program for litert has the loader flat, expected none"),
        ({"launches": (launch(),)}, "a program for cpu has launches"),
        ({"output_offsets": (0,)}, "a program for cpu has launches or device offsets"),
        ({"arena_bytes": -1}, "arena_bytes is -1"),
        ({"scratch_bytes": 1 << 62}, "scratch_bytes"),
        ({"entries": (("run", 5000),)}, "entry run is 5000, expected 0 to 4999"),
        ({"entries": (("run", -1),)}, "entry run is -1"),
        ({"inputs": (Port(name="x", index=0, shape=(-1,), dtype="int8", nbytes=1),)}, "a size of tensor x is -1"),
        ({"states": (State(name="h", nbytes=-1),)}, "bytes of state h is -1"),
        ({"states": (State(name="h", nbytes=1 << 41),)}, "bytes of state h is 2199023255552"),
        ({"states": (State(name="h", nbytes=8, initial=-2),)}, "first value of state h is -2, expected 0 to 5112"),
        ({"states": (State(name="h", nbytes=8, initial=5113),)}, "first value of state h is 5113"),
        ({"states": (State(name="h", nbytes=8, shape=(2, -1)),)}, "a size of state h is -1"),
        ({"target": "litert", "loader": "none"}, "a program without code has the state cell"),
        ({"aliases": ((-1, 1),)}, "input of an alias is -1, expected 0 to 2"),
        ({"aliases": ((1, 3),)}, "output of an alias is 3, expected 0 to 2"),
        ({"aliases": ((1, 2),)}, "the aliases cell and hidden have 120 and 8 bytes"),
        ({"aliases": ((1, 1), (1, 1))}, "the aliases of cell and cell are not their only ones"),
    ],
)
def test_values_that_the_runtime_relies_on_are_checked(change: dict[str, object], message: str) -> None:
    program = full_program()
    for name, value in change.items():
        setattr(program, name, value)
    with pytest.raises(ProgramError, match=message):
        read(write(program))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"loader": "flat"}, "a program for cuda has launches or device offsets, expected none"),
        ({"entries": (("contract_0", 64), ("map_0", 128))}, "entry map_0: .* is at 128, expected b'.x7fELF.x02"),
        ({"entries": (("contract_0", 0), ("map_0", 1))}, "entry map_0: .* is at 1, .* multiple of 64"),
        (
            {"code": bytes(32) + HEADER_OF_CUBIN + bytes(100), "entries": (("contract_0", 32),)},
            "is at 32, .* multiple of 64",
        ),
        ({"entries": (("contract_0", 320),)}, "entry contract_0 is 320, expected 0 to 319"),
        ({"entries": ()}, "launch 0: kernel is 0, expected 0 to -1"),
        ({"input_offsets": ()}, "0 offsets of inputs, expected 2"),
        ({"input_offsets": (-1, 0)}, "offset of tensor image is -1"),
        ({"output_offsets": (511, 0)}, "offset of tensor scores is 511, expected 512 to"),
        ({"output_offsets": (768, 497)}, "offset of tensor cell is 497, expected 0 to 496"),
        ({"output_offsets": (768, 768)}, "offset of tensor cell is 768, expected 0 to 496"),
        ({"output_offsets": (1024, 512)}, "launch 1: an argument of kind 'p' is 768, expected one within"),
        ({"output_offsets": (0,)}, "1 offsets of outputs, expected 2"),
    ],
)
def test_values_that_the_cuda_runtime_relies_on_are_checked(change: dict[str, object], message: str) -> None:
    program = cuda_program()
    for name, value in change.items():
        setattr(program, name, value)
    with pytest.raises(ProgramError, match=message):
        read(write(program))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kernel": 2}, "kernel is 2, expected 0 to 1"),
        ({"kernel": -1}, "kernel is -1"),
        ({"grid": (0, 1, 1)}, r"grid is \(0, 1, 1\), expected 1 to \(2147483647, 65535, 65535\)"),
        ({"grid": (1, 65536, 1)}, "grid is"),
        ({"grid": (1 << 31, 1, 1)}, "grid is"),
        ({"block": (1, 1, 65)}, "block is"),
        ({"block": (1, -1, 1)}, "block is"),
        ({"block": (1024, 2, 1)}, "threads per block is 2048, expected 0 to 1024"),
        ({"shared_bytes": -1}, "shared_bytes is -1"),
        ({"shared_bytes": 227 * 1024 + 1}, "shared_bytes is 232449"),
        ({"kinds": "awix"}, "arguments are of kinds 'awix', expected letters of 'awpifs'"),
        ({"kinds": "aw\0f"}, "arguments are of kinds"),
        ({"values": (513, 100, -5, 0)}, "argument of kind 'a' is 513, expected 0 to 512"),
        ({"values": (-4, 100, -5, 0)}, "argument of kind 'a' is -4"),
        ({"values": (256, 101, -5, 0)}, "argument of kind 'w' is 101, expected 0 to 100"),
        ({"values": (256, 100, 1 << 31, 0)}, "argument of kind 'i' is 2147483648"),
        ({"values": (256, 100, 0, 1 << 32)}, "argument of kind 'f' is 4294967296"),
        ({"kinds": 513 * "i", "values": 513 * (0,)}, "arguments is 513, expected 0 to 512"),
    ],
)
def test_values_of_a_launch_are_checked(change: dict[str, object], message: str) -> None:
    program = cuda_program()
    program.launches = (program.launches[1], launch(**change))
    with pytest.raises(ProgramError, match=f"launch 1: {message}"):
        read(write(program))


def test_only_programs_that_refuse_runs_have_a_status_word() -> None:
    program = cuda_program()
    first, second = program.launches[1], launch()
    changed = second.altered(kinds=f"{second.kinds}s", values=(*second.values, 0))
    program.launches = first, changed
    with pytest.raises(ProgramError, match="launch 1 has a status word, but the program refuses no run"):
        read(write(program))
    program.refusals = ("out of {}", "and so on")
    found = read(write(program))
    assert (found.launches, found.refusals) == (program.launches, program.refusals)
    program.launches = first, changed.altered(values=(*second.values, 8))
    with pytest.raises(ProgramError, match="argument of kind 's' is 8, expected 0 to 0"):
        read(write(program))


@pytest.mark.parametrize(
    ("window", "message"),
    [
        ((0, 1, 2, 9), ""),
        ((2, 1, 0, 9), "updated input of a window is 2, expected 0 to 1"),
        ((0, 2, 0, 9), "input of a window is 2, expected 0 to 1"),
        ((1, 0, 0, 9), "type of input of a window is 'float32'"),
        ((0, 1, 3, 9), "element of a window is 3, expected 0 to 2"),
        ((0, 1, -1, 9), "element of a window is -1"),
        ((0, 1, 0, -1), "largest value of a window is -1"),
    ],
)
def test_windows_are_checked(window: tuple[int, int, int, int], message: str) -> None:
    cache = Port(name="cache", index=0, shape=(1, 9), dtype="float32", nbytes=36)
    place = Port(name="place", index=1, shape=(3,), dtype="int64", nbytes=24)
    program = Program(key=(), target="litert", inputs=(cache, place), windows=(window,))
    if message:
        with pytest.raises(ProgramError, match=message):
            read(write(program))
    else:
        assert read(write(program)).windows == (window,)


@pytest.mark.parametrize(
    "numbers",
    [
        (0,) * 8,
        (0, 1, 1, 1, 1, 1, 1, 0, -1),
        (0, 1, 1, 1, 1, 1, 1, 0, 1, 97),
        (0, 1, 1, 1, 1, 1, 1, 0, 1, 97, 0, 5),
        (0, 1, 1, 1, 1, 1, 1, 0, 1 << 62),
        (0, 1, 1, 1, 1, 1, 1, 0, 1, 200, 0),
        (0, 1, 1, 1, 1, 1, 1, 0, 1, -1, 0),
    ],
)
def test_a_list_that_is_no_list_of_launches_is_refused(numbers: tuple[int, ...]) -> None:
    with pytest.raises(ProgramError, match="arguments"):
        unpack(numbers)


@pytest.mark.parametrize("content", [b"", b"TFL3", bytes(200), bytes(1 << 16), "text", 5, None])
def test_what_is_no_program_is_refused(content: object) -> None:
    with pytest.raises(ProgramError):
        read(content)  # type: ignore[arg-type]


def test_a_program_of_another_format_version_says_so() -> None:
    content = bytearray(small_content())
    content[8] += 1
    with pytest.raises(ProgramError, match="format version 14, expected 13"):
        read(content)


def test_the_code_hash_can_be_left_out() -> None:
    content = bytearray(small_content())
    content[HEADER.unpack_from(content)[6]] ^= 1
    with pytest.raises(ProgramError, match="code"):
        read(content)
    assert read(content, verify_code=False).target == "cpu"


def test_the_weights_are_a_part_of_the_file_without_a_copy() -> None:
    program = full_program()
    head, weights = parts(program)
    assert weights is program.weights
    assert head + weights == write(program)
