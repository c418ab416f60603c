"""Programs of one model store equal weights once, use the same pages, and survive whatever happens to each other."""

from __future__ import annotations

import gc
import os
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import jitdelegate
from cache_tools.entries import open_entries
from jitdelegate.base.options import DelegateOptions
from jitdelegate.compiler import compile
from jitdelegate.engine.executable import Executable
from jitdelegate.engine.load_path import find_key, specialize
from jitdelegate.engine.model_file import ModelFile
from jitdelegate.engine.precompile import precompile
from jitdelegate.ir.graph import Quant
from jitdelegate.program.program import Program
from jitdelegate.program.read import complete, read_front, weights_start
from jitdelegate.runtime.cache import store
from jitdelegate.runtime.cache.key import fingerprint, variant_parts
from jitdelegate.runtime.cache.shared_weights import whole_weights
from jitdelegate.runtime.cache.store import counts
from jitdelegate.targets import target_named
from jitdelegate.targets.planning.constants import Constants
from jitdelegate.tflite import read as reader
from jitdelegate.tflite.read import read as read_model
from jitdelegate.tflite.write import ModelBuilder
from tests.entries import overwrite

ROWS, DEPTH = 320, 64
MATRIX = 4 * ROWS * DEPTH
MATRICES = np.random.default_rng(5).normal(size=(3, ROWS, DEPTH)).astype(np.float32)
X = np.random.default_rng(6).normal(size=(1, DEPTH)).astype(np.float32)
LONG = np.concatenate([X, -X, X, X, -X])


def model() -> bytes:
    """f32[?,64]: signature "one" multiplies by matrix 0, "two" by the matrices 0 and 1 and "three" by all, each."""
    made = ModelBuilder()
    graphs = [made, made.subgraph("two"), made.subgraph("three")]
    for number, (key, graph) in enumerate(zip(("one", "two", "three"), graphs, strict=True)):
        value = graph.input((1, DEPTH), name="x", shape_signature=(-1, DEPTH))
        outputs = {}
        for each in reversed(range(number + 1)):  # the shared matrix lies somewhere else in each program
            weights = graph.constant(MATRICES[each])
            result = graph.op("FULLY_CONNECTED", [value, weights, None], (1, ROWS), name=f"y{each}")
            graph.output(result)
            outputs[f"y{each}"] = result
        made.signature(key, {"x": value}, outputs, number)
    return made.finish()


MODEL = model()


@pytest.fixture(autouse=True)
def weights_of_any_size_are_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "LEAST_SHARED", 0)
    monkeypatch.setattr("jitdelegate.program.write.LEAST_PAGES", 0)
    counts.reset()


def load(cache: Path, **options: object) -> jitdelegate.Model:
    return jitdelegate.load(MODEL, serialization_dir=cache, target="cpu", num_threads=1, options=options)


def opened(loaded: jitdelegate.Model, *subgraphs: int) -> list[Executable]:
    return [loaded._specializations.subgraph(number) for number in subgraphs]


def right(loaded: jitdelegate.Model, x: np.ndarray = X, first: int = 0) -> None:
    """Every signature from the `first` on answers what numpy does."""
    for number, key in list(enumerate(("one", "two", "three")))[first:]:
        found = loaded.run({"x": x}, signature=key)
        for each in range(number + 1):
            np.testing.assert_allclose(np.asarray(found[f"y{each}"]), x @ MATRICES[each].T, rtol=1e-4, atol=1e-4)


def fill(cache: Path) -> list[Path]:
    """A cache with three programs; their entries."""
    with load(cache) as loaded:
        right(loaded)
        return [Path(each.lookup.path or "") for each in opened(loaded, 0, 1, 2)]


def pages(session: object) -> set[tuple[int, int]]:
    """(inode, page) of each page of the weights that is mapped from a file."""
    shared = session.shared  # type: ignore[attr-defined]
    if shared is None:
        pytest.skip("nothing is shared on this system")
    first, last, found = shared._address, shared._address + len(shared), set()
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, _, offset, _, inode, *_ = line.split()
        start, end = (int(part, 16) for part in span.split("-"))
        if int(inode) and first <= start < last:
            found |= {(int(inode), int(offset, 16) // 4096 + k) for k in range((end - start) // 4096)}
    return found


def test_an_equal_matrix_is_stored_once_and_is_the_same_memory(tmp_path: Path) -> None:
    paths = fill(tmp_path)
    sizes = [path.stat().st_size for path in paths]
    assert sizes[0] > MATRIX and MATRIX < sizes[1] < 2 * MATRIX and 2 * MATRIX < sizes[2] < 3 * MATRIX
    with load(tmp_path) as loaded:
        right(loaded)
        main, two = (pages(each.session) for each in opened(loaded, 0, 1))
        assert len(main & two) >= MATRIX // 4096 and counts.hits >= 3


def test_a_program_for_other_shapes_stores_no_matrix_again(tmp_path: Path) -> None:
    fill(tmp_path)
    before = set(tmp_path.glob("*.jitd"))
    with load(tmp_path) as loaded:
        right(loaded, LONG)
        three = loaded._specializations.resized(opened(loaded, 2)[0], ((5, DEPTH),))
        assert {number for _, number, _, _ in three.program.shared} == {0, 1}
    further = set(tmp_path.glob("*.jitd")) - before
    assert len(further) == 3 and all(path.stat().st_size < MATRIX for path in further)
    with load(tmp_path) as loaded:
        counts.reset()
        right(loaded, LONG)
        assert (counts.misses, counts.hits) == ({}, 5)


@pytest.mark.parametrize("is_hosted", [False, True])
def test_a_program_for_other_shapes_packs_no_matrix_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_hosted: bool
) -> None:
    def compiled(rows: int) -> Executable:
        variant = variant_parts(0, ((rows, DEPTH),) if rows > 1 else (), hosted=is_hosted)
        return specialize(loaded._opened, variant)

    packed: list[int] = []
    extend = Constants._extend

    def count(constants: Constants, make: Callable[[], Iterator[np.ndarray]]) -> None:
        before = len(constants.content)
        extend(constants, make)
        packed.append(len(constants.content) - before)

    monkeypatch.setattr(Constants, "_extend", count)
    with load(tmp_path) as loaded:
        main = compiled(1)
        packed.clear()
        further = compiled(5)
    assert max(packed, default=0) < MATRIX and further.outcome == "miss"
    assert sum(pages for *_, pages in further.program.shared) * 4096 >= MATRIX
    assert main.program.named_constants and further.program.named_constants


def quantized() -> bytes:
    """i8[?,4,4,256] -> CONV_2D to 512 channels, of 128 KB -> DEPTHWISE_CONV_2D with a scale for each channel."""
    made, channels = ModelBuilder(), 512
    random = np.random.default_rng(7)

    def weights(shape: tuple[int, ...], axis: int) -> tuple[int, int]:
        scales = tuple(random.uniform(0.001, 0.003, channels).tolist())
        zeros = (0,) * channels
        numbers = random.integers(-127, 128, shape, np.int8)
        bias = random.integers(-999, 999, channels, np.int32)
        return (
            made.constant(numbers, quant=Quant(scales, zeros, axis)),
            made.constant(bias, quant=Quant(tuple(0.05 * scale for scale in scales), zeros)),
        )

    one = Quant((0.05,), (3,))
    x = made.input((1, 4, 4, 256), "int8", quant=one, shape_signature=(-1, 4, 4, 256))
    shape, options = (1, 4, 4, channels), {"padding": "SAME", "stride_w": 1, "stride_h": 1}
    y = made.op("CONV_2D", [x, *weights((channels, 1, 1, 256), 0)], shape, options=options, dtype="int8", quant=one)
    inputs = [y, *weights((1, 3, 3, channels), 3)]
    more = options | {"depth_multiplier": 1}
    made.output(made.op("DEPTHWISE_CONV_2D", inputs, shape, options=more, dtype="int8", quant=one))
    return made.finish()


@pytest.mark.parametrize("content", [MODEL, quantized()], ids=["floats", "integers"])
def test_weights_that_are_taken_by_name_are_those_that_are_packed(content: bytes) -> None:
    options = DelegateOptions(target="cpu")
    device = target_named("cpu").find_device(options)

    def compiled(rows: int, *sources: Program) -> tuple[Program, memoryview]:
        shapes = ((rows, *read_model(content).graphs[0].tensors[0].shape[1:]),) if rows > 1 else ()
        key = find_key(device, options, fingerprint(content), variant_parts(0, shapes))
        file = b"".join(compile.compile_model(content, options, key, {}, sources))
        start = weights_start(file, len(file))
        program, stored = read_front(file[:start], len(file)), memoryview(file)[start:]
        return program, whole_weights(program, stored, sources)

    main = complete(*compiled(1))
    (further, weights), (alone, expected) = compiled(3, main), compiled(3)
    assert further.shared and not alone.shared
    assert bytes(weights) == bytes(expected)
    assert (further.code, further.weights_hash, further.loader) == (alone.code, alone.weights_hash, "flat")


def test_a_program_for_other_shapes_takes_what_was_read_for_an_earlier_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Counter[str]()

    def counted(owner: object, name: str) -> None:
        function = getattr(owner, name)

        def count(*args: object, **kwargs: object) -> object:
            calls[name] += 1
            return function(*args, **kwargs)

        monkeypatch.setattr(owner, name, count)

    with load(tmp_path) as loaded, loaded._specializations.main.source.kept():
        counted(ModelFile, "make")
        counted(ModelFile, "content")
        counted(reader, "read")
        right(loaded, LONG)
        calls.clear()
        loaded._specializations.resized(loaded._opened, ((7, DEPTH),))
    assert calls == {"make": 1, "content": 1}


def test_bytes_depend_on_no_order(tmp_path: Path) -> None:
    contents = defaultdict(set)
    for number, order in enumerate(((1, 2), (2, 1))):
        with load(tmp_path / str(number)) as loaded:
            for each in opened(loaded, *order):
                loaded._specializations.resized(each, ((5, DEPTH),))
        for path in (tmp_path / str(number)).glob("*.jitd"):
            contents[path.name].add(path.read_bytes())
    assert len(contents) == 5 and all(len(each) == 1 for each in contents.values())


def missing(main: Path) -> None:
    main.unlink()


def cut(main: Path) -> None:
    os.truncate(main, main.stat().st_size - 5 * 4096)


def emptied(main: Path) -> None:
    os.truncate(main, 0)


def broken(main: Path) -> None:
    content = bytearray(main.read_bytes())
    content[-8 * 4096 :: 512] = bytes(len(content[-8 * 4096 :: 512]))
    overwrite(main, content)


def replaced(main: Path) -> None:
    """By the program of another subgraph, whose weights lie somewhere else."""
    other = next(path for path in main.parent.glob("*.jitd") if path != main)
    shutil.copyfile(other, main.with_name("other"))
    os.replace(main.with_name("other"), main)


def writable_by_others(main: Path) -> None:
    main.chmod(0o666)


def linked(main: Path) -> None:
    main.rename(main.with_name("elsewhere"))
    main.symlink_to(main.with_name("elsewhere"))


FAULTS = (missing, cut, emptied, broken, replaced, writable_by_others, linked)


@pytest.mark.parametrize("private", [False, True])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_main_entry_that_is_bad_is_a_miss_of_those_that_share_its_weights(
    tmp_path: Path, fault: Callable[[Path], None], private: bool
) -> None:
    paths = fill(tmp_path)
    with load(tmp_path, private_weights=private) as loaded:
        fault(paths[0])  # once the main program is open
        counts.reset()
        right(loaded, first=1)
        two = opened(loaded, 1)[0]
        assert two.outcome == "miss"
        if fault in (broken, replaced):  # which only a hash tells
            assert counts.misses == {"damaged": 2, "absent": 2}
        else:
            assert counts.misses == {"incomplete": 2} and paths[0].name in two.lookup.reason
    with load(tmp_path) as loaded:
        right(loaded)
    with load(tmp_path) as loaded:
        counts.reset()
        right(loaded)
        assert (counts.misses, counts.hits) == ({}, 2)


@pytest.mark.parametrize("fault", FAULTS)
def test_what_happens_to_the_main_entry_while_all_run_changes_no_answer(
    tmp_path: Path, fault: Callable[[Path], None]
) -> None:
    paths = fill(tmp_path)
    with load(tmp_path) as loaded:
        right(loaded)
        fault(paths[0])
        for _ in range(2):
            right(loaded)
    for _ in range(2):
        counts.reset()
        with load(tmp_path) as loaded:
            right(loaded)
    assert (counts.misses, counts.hits) == ({}, 3)


def test_private_weights_are_of_no_file(tmp_path: Path) -> None:
    paths = fill(tmp_path)
    with load(tmp_path, private_weights=True) as loaded:
        two = opened(loaded, 1)[0]
        assert two.outcome == "hit" and two.session is not None and two.session.shared is None
        for path in paths:
            emptied(path)
        right(loaded)


def test_a_program_that_cannot_be_written_has_all_its_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with load(tmp_path) as loaded:
        monkeypatch.setattr("jitdelegate.runtime.cache.store.Store.put", lambda *_: "the disk is full")
        two = opened(loaded, 1)[0]
        assert two.program.shared and two.lookup.write_failure
        right(loaded)
    assert len(list(tmp_path.glob("*.jitd"))) == 1


@pytest.fixture
def precompiled(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "model.tflite"
    path.write_bytes(MODEL)
    device = target_named("cpu").find_device(DelegateOptions())
    precompile(str(path), device, DelegateOptions(serialization_dir=str(tmp_path / "programs")))
    yield tmp_path / "programs"


def test_programs_compiled_ahead_share_too_and_are_checked_by_the_cache_s_tools(precompiled: Path) -> None:
    assert sum(path.stat().st_size for path in precompiled.glob("*.jitd")) < 5 * MATRIX
    entries = open_entries(str(precompiled), verify=True)
    assert [each.trouble for each in entries] == 3 * [""]
    main = next(each for each in entries if each.program is not None and not each.program.part("subgraph"))
    broken(Path(main.path))
    assert sum(bool(each.trouble) for each in open_entries(str(precompiled), verify=True)) == 3
    missing(Path(main.path))
    entries = open_entries(str(precompiled))
    assert [os.path.basename(main.path) in each.trouble for each in entries] == [True, True]


def test_a_source_of_weights_is_the_program_for_the_file_s_shapes(tmp_path: Path) -> None:
    with load(tmp_path) as loaded:
        main = loaded._opened
        names = [each.entry_name() for each in specialize(main, variant_parts(2, ((5, DEPTH),))).key.weight_sources]
        assert names == [main.key.entry_name(), opened(loaded, 2)[0].key.entry_name()]
        assert main.key.weight_sources == ()


def matrices(each: Executable) -> set[int]:
    """The addresses where the program reads its matrices."""
    return set(each.session._memory.weights.constants)  # type: ignore[union-attr, attr-defined]


def test_the_programs_of_a_process_read_an_equal_matrix_at_one_place(tmp_path: Path) -> None:
    for _ in range(2):  # as they are compiled, and from the cache
        with load(tmp_path) as first, load(tmp_path) as second:
            right(first, LONG)
            right(second, LONG)
            base = [opened(loaded, 0, 1, 2) for loaded in (first, second)]
            further = [
                [loaded._specializations.resized(each, ((5, DEPTH),)) for each in programs]
                for loaded, programs in zip((first, second), base, strict=True)
            ]
            for one, two, three in (*base, *further):
                assert matrices(one) < matrices(two) and matrices(one) < matrices(three)
                assert len(matrices(three)) == 3
            for programs in zip(*base, *further, strict=True):
                assert len({frozenset(matrices(each)) for each in programs}) == 1


def test_private_programs_read_an_equal_matrix_at_one_place(tmp_path: Path) -> None:
    fill(tmp_path)
    with load(tmp_path, private_weights=True) as loaded:
        right(loaded, LONG)
        main, two, three = opened(loaded, 0, 1, 2)
        assert matrices(main) < matrices(two) and matrices(main) < matrices(three)
        assert matrices(loaded._specializations.resized(three, ((5, DEPTH),))) == matrices(three)


def test_a_process_that_closed_a_model_shares_nothing_of_it(tmp_path: Path) -> None:
    fill(tmp_path)
    with load(tmp_path) as loaded:
        right(loaded)
    gc.collect()
    with load(tmp_path) as loaded:
        right(loaded)
        assert pages(opened(loaded, 0)[0].session)
