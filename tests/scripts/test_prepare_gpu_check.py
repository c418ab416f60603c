"""What is prepared for the check on a GPU machine."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import flatbuffers
import llvmlite
import numpy as np
import pytest

from jitdelegate.commands.demo_model import mobilenet_v1
from jitdelegate.commands.guide_models import quantized_classifier
from jitdelegate.errors import DeviceError, JitDelegateError
from jitdelegate.ops import OPS
from jitdelegate.ops.case import Case, ints
from jitdelegate.program.read import read
from jitdelegate.targets.cuda.code.template import Template
from jitdelegate.targets.reference.evaluate import run_graph
from jitdelegate.tflite.read import read as read_model
from jitdelegate.tflite.write import ModelBuilder
from scripts.gpu_check import bundle
from scripts.gpu_check.bundle import BATCHES, EXAMPLE, FORM, MODEL, Entry, Prepared, read_bundle
from scripts.gpu_check.weights import lowered, plan_of
from scripts.one_op_models import MAKERS
from scripts.prepare_gpu_check import __main__ as command
from scripts.prepare_gpu_check import folder as folder_module
from scripts.prepare_gpu_check.decoder import decoder
from scripts.prepare_gpu_check.families import families, separable
from scripts.prepare_gpu_check.folder import Folder, compiled, sources_of, stored
from scripts.prepare_gpu_check.forms import between_pools, forms
from scripts.prepare_gpu_check.networks import blocks_of, example, litert_outputs, network, networks, small_example
from scripts.prepare_gpu_check.quantized import quantized_forms
from scripts.prepare_gpu_check.source import Feed, Source, limits
from tests.api.small_models import convolution, two_outputs, uncompiled
from tests.ops.litert import all_outputs, model_of, run_litert

POOL = Case(((1, 6, 6, 3),), {"stride_w": 2, "stride_h": 2, "filter_width": 2, "filter_height": 2})


def source(name: str = "one", **changes: Any) -> Source:
    values = [Feed(np.zeros((1, 8, 8, 3), np.float32))]
    expected = [Feed(np.ones(4, np.float32))]
    made = Source(name, FORM, convolution(), values, lambda: expected, "numpy", ("float32", "float16"))
    return replace(made, **changes)


def folder(path: Path, room: int = 1 << 20) -> Folder:
    return Folder(path / "bundle", ["sm_90"], room)


def compile_as(monkeypatch: pytest.MonkeyPatch, program: bytes) -> None:
    """Every model compiles to this program."""

    def keep(source: Source, content: bytes, gpu: str, precision: str, path: str) -> tuple[bytes, Entry]:
        return content, Entry(path, "0" * 32)

    monkeypatch.setattr(folder_module, "compiled", lambda *arguments: program)
    monkeypatch.setattr(folder_module, "stored", keep)
    monkeypatch.setattr(folder_module, "ceilings_program", lambda gpu: b"ceilings")


def test_every_operator_with_cases_has_a_form_and_images_also_lie_between_layers() -> None:
    names = [each.name for each in forms()]
    assert len(set(names)) == len(names)
    assert {name for name, op in OPS.items() if op.cases and not op.custom} <= {name.split()[1] for name in names}
    assert sum(name.endswith("CONV_2D between layers") for name in names) > 10


def test_every_form_feeds_what_its_model_takes_and_expects_what_it_gives() -> None:
    for one in [*forms(), *families(), *quantized_forms()]:
        graph = read_model(one.content).graphs[0]
        for ports, feeds in ((graph.inputs, one.feeds), (graph.outputs, one.expected())):
            assert [graph.tensors[index].shape for index in ports] == [feed.array.shape for feed in feeds], one.name


def test_a_form_with_states_expects_what_litert_answers_first() -> None:
    of_states = [
        one for one in forms() if any(tensor.is_variable for tensor in read_model(one.content).graphs[0].tensors)
    ]
    assert len(of_states) > 15
    for one in of_states:
        found = all_outputs(one.content, [feed.array for feed in one.feeds])
        for array, feed in zip(found, one.expected(), strict=True):
            np.testing.assert_allclose(array, feed.array, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["CONV_2D", "TRANSPOSE_CONV", "ADD", "RESIZE_BILINEAR"])
def test_a_form_between_layers_expects_what_litert_computes(name: str) -> None:
    ended = f"{name} between layers"
    each = next(one for one in forms() if one.name.endswith(ended))
    (expected,) = each.expected()
    arrays = [feed.array for feed in each.feeds]
    np.testing.assert_allclose(run_litert(each.content, arrays), expected.array, rtol=1e-5, atol=1e-5)
    assert all(np.array_equal(array, array.astype(np.float16)) for array in arrays)
    assert each.precisions == ("float16",)


def test_every_operator_that_litert_quantizes_has_forms_that_expect_what_it_answers() -> None:
    found = list(quantized_forms())
    assert len({each.name for each in found}) == len(found) == 3 * len(MAKERS)
    assert {one.name.split()[-1] for one in found} >= {"int8", "uint8", "int16"}
    each = next(one for one in found if " RESHAPE " in one.name)
    (expected,) = each.expected()
    np.testing.assert_array_equal(expected.array, run_litert(each.content, [feed.array for feed in each.feeds]))


def kernels(of: type[Template] = Template) -> Iterator[type[Template]]:
    """The package's, by the classes that they are made from."""
    for one in of.__subclasses__():
        yield from (one, *kernels(one))


def test_every_family_of_kernels_is_in_a_graph_of_a_few_operators() -> None:
    """But the one that only GPUs without clusters have."""
    found = {"contract_combine"}
    for graph in [*families(), small_example(), *forms(), *quantized_forms()]:
        with suppress(JitDelegateError):  # it is left out of the bundle, by name
            for precision in graph.precisions:
                planned = plan_of(graph.content, (), "sm_90", precision)
                found.update(launch.template.family for launch in planned.launches)
    own = [one for one in kernels() if one.__module__.startswith("jitdelegate.")]
    assert found == {one.family for one in own if hasattr(one, "family")}


def test_cells_and_joined_convolutions_of_bytes_are_prepared() -> None:
    of_bytes = [one for one in families() if one.expected()[0].array.dtype == np.int8]
    plans = [plan_of(one.content, (), "sm_90", "float32").launches for one in of_bytes]
    assert {launch.template.family for plan in plans for launch in plan} >= {"cell", "separable_mma"}
    assert {one.precisions for one in of_bytes} == {("float32",)}
    pair = next(one for one in of_bytes if one.content == separable())
    (found,) = run_graph(lowered(pair.content, ()), [feed.array for feed in pair.feeds])
    np.testing.assert_array_equal(found, pair.expected()[0].array)
    assert all(one.expected()[0].array.any() for one in families())


def test_a_decoder_goes_on_with_the_cache_of_the_step_before() -> None:
    one, other = (decoder(("float32",), steps).expected() for steps in (2, 3))
    for (cache, *_), rows in ((one, 2), (other, 3)):
        assert np.flatnonzero(cache.array.any(axis=(0, 2, 3))).tolist() == list(range(rows))
    np.testing.assert_array_equal(other[0].array[:, :2], one[0].array[:, :2])
    case = bundle.Case("d", MODEL, "", [], [], steps=3, carried=decoder(()).carried)
    prepared = Prepared(case, "float32", "sm_90", Path())
    inputs = [b"aabbcc", b"123", b"key", b"value"]
    assert prepared.fed(inputs, 0) == [(0, b"aa"), (1, b"1"), (2, b"key"), (3, b"value")]
    assert prepared.fed(inputs, 2) == [(0, b"cc"), (1, b"3")]


def test_a_quantized_network_is_prepared_as_it_is_and_expects_integers() -> None:
    (one,) = network("net", quantized_classifier(), ("float32", "float16"), BATCHES)
    (expected,) = one.expected()
    assert (one.precisions, expected.array.dtype, expected.array.shape) == (("float32",), np.int8, (1, 10))


def test_packages_of_python_alone_are_in_the_bundle(tmp_path: Path) -> None:
    (tmp_path / "python.zip").write_bytes(sources_of(flatbuffers, llvmlite))
    code = f"import sys; sys.path[:0] = [{str(tmp_path / 'python.zip')!r}]; import flatbuffers, llvmlite.ir as ir"
    done = subprocess.run([sys.executable, "-S", "-c", f"{code}; print(ir.__file__)"], capture_output=True, text=True)
    assert done.stdout.startswith(str(tmp_path)), done.stderr


def test_pools_around_a_graph_change_nothing() -> None:
    graph = POOL.graph(OPS["MAX_POOL_2D"])
    outer = between_pools(graph)
    assert [node.op for node in outer.nodes] == ["MAX_POOL_2D"] * 3
    np.testing.assert_array_equal(run_litert(model_of(outer), POOL.feeds()), run_litert(model_of(graph), POOL.feeds()))


def test_a_network_that_can_be_resized_is_prepared_for_batches_that_litert_ran() -> None:
    sources = list(network("net", convolution(), ("float32",), (1, 2, 8)))
    assert [(one.name, one.batch, one.shapes) for one in sources] == [
        ("net", 1, ()),
        ("net, batch 2", 2, ((2, 8, 8, 3),)),
        ("net, batch 8", 8, ((8, 8, 8, 3),)),
    ]
    assert all((one.shared, one.group) == ("net", MODEL) for one in sources)
    for one in sources:
        (images,), (expected,) = one.feeds, one.expected()
        assert images.array.shape == (2, 8, 8, 3) and images.blocks == (4 * 8 * 8 * 3,)
        assert not np.array_equal(*images.array)
        assert expected.blocks == (4 * 4 * 4 * 4,)
        for image, found in zip(images.array, expected.array, strict=True):
            np.testing.assert_array_equal(run_litert(convolution(), [image[None]]), found)


def test_a_batchs_output_is_taken_apart_where_it_consists_of_blocks_of_images() -> None:
    first, second = np.arange(10.0), np.arange(10.0) + 100
    places = [first, second, second, first]
    joined = np.concatenate([*(image[:6] for image in places), *(image[6:] for image in places)])
    pair = np.stack([first, second])
    assert blocks_of(joined, pair, 4) == [6, 4]
    assert blocks_of(np.concatenate(places), pair, 4) == [10]
    assert blocks_of(np.concatenate([first, second, first, second]), pair, 4) == []
    assert blocks_of(joined[:-1], pair, 4) == blocks_of(np.zeros(40), pair, 4) == []


def mixed() -> bytes:
    """Images that are joined, so that the answer to a batch does not consist of answers to images."""
    model = ModelBuilder()
    image = model.input((1, 2, 3))
    model.output(model.op("REDUCE_MAX", [image, model.constant(np.array([0], np.int32))], (2, 3)))
    return model.finish()


def test_outputs_that_do_not_consist_of_those_of_images_are_kept_whole() -> None:
    *_, many = network("net", mixed(), ("float32",), (1, 8))
    (expected,) = many.expected()
    assert (expected.blocks, expected.array.shape) == ((), (2, 3))
    np.testing.assert_array_equal(expected.array, many.feeds[0].array.max(axis=0))


def test_a_network_that_cannot_be_resized_is_prepared_as_it_is() -> None:
    model = ModelBuilder()
    shape = model.constant(np.array([1, 6], np.int32))
    model.output(model.op("RESHAPE", [model.input((1, 2, 3)), shape], (1, 6), options={"new_shape": (1, 6)}))
    (one,) = network("net", model.finish(), ("float32",), BATCHES)
    (feed,), (expected,) = one.feeds, one.expected()
    assert (one.batch, feed.blocks, feed.array.shape, expected.blocks) == (1, (), (1, 2, 3), ())


def test_inputs_are_numbers_that_16_bits_hold_exactly() -> None:
    (one,) = network("net", convolution(), ("float32",), (1,))
    (feed,) = one.feeds
    assert np.array_equal(feed.array, feed.array.astype(np.float16)) and len(np.unique(feed.array)) > 100


def test_the_example_is_prepared_in_all_precisions_and_for_all_batches() -> None:
    found = list(example(32, 0.25))
    assert [(one.name, one.precisions) for one in found] == [
        (name, ("float32", "tf32", "float16")) for name in (EXAMPLE, f"{EXAMPLE}, batch 8", f"{EXAMPLE}, batch 32")
    ]
    assert small_example().group == FORM and small_example().shared == ""


def test_what_is_kept_can_be_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_as(monkeypatch, b"a program")
    filled = folder(tmp_path)
    filled.add(source(feeds=2 * source().feeds))
    filled.finish()
    found = read_bundle(tmp_path / "bundle")
    first, second = found.prepared("sm_90")
    assert (first.precision, second.precision) == ("float32", "float16")
    assert first.content == b"a program" and first.outputs == [np.ones(4, np.float32).tobytes()]
    assert first.inputs == 2 * [bytes(4 * 8 * 8 * 3)] and found.ceiling("sm_90") == b"ceilings"
    files = [path for path in (tmp_path / "bundle").rglob("*.*") if path.name != "manifest.json"]
    assert filled.nbytes == sum(path.stat().st_size for path in files)


def test_what_batches_share_is_in_the_folder_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_as(monkeypatch, b"a program")
    filled = folder(tmp_path)
    for each in network("net", convolution(), ("float32", "float16"), (1, 2, 8)):
        filled.add(each)
    filled.finish()
    assert [path.name for path in (tmp_path / "bundle" / "models").iterdir()] == ["net.tflite.z"]
    assert len(list((tmp_path / "bundle" / "data").glob("net_images-*"))) == 2
    single, many = (read_bundle(tmp_path / "bundle").cases[place] for place in (0, 2))
    assert single.model == many.model == "models/net.tflite.z"
    assert ([list(shape) for shape in many.shapes], many.batch) == ([[8, 8, 8, 3]], 8)


def test_what_finds_no_room_is_left_out_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_as(monkeypatch, bytes(np.random.default_rng(0).bytes(3000)))
    filled = folder(tmp_path, room=5000)
    filled.add(source())
    assert list(filled.cases[0].programs) == ["sm_90 float32"]
    assert list(filled.left_out) == ["one, float16"] and "room" in filled.left_out["one, float16"]


def noise(*shape: int) -> list[Feed]:
    return [Feed(np.random.default_rng(0).random(shape, np.float32))]


@pytest.mark.parametrize("changes", [{"feeds": noise(1, 8, 8, 3)}, {"expected": lambda: noise(400)}, {"shared": "net"}])
def test_inputs_outputs_and_models_take_room_too(
    changes: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compile_as(monkeypatch, b"a program")
    content = convolution() + bytes(np.random.default_rng(0).bytes(2000))
    filled = folder(tmp_path, room=500)
    filled.add(source(content=content, **changes))
    assert filled.cases == [] and filled.nbytes == 0 and len(filled.left_out) == 2


def test_what_the_reference_refuses_is_left_out_with_its_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> Sequence[Feed]:
        raise RuntimeError("Encountered unresolved custom op: Sinh.\nSee instructions.")

    filled = folder(tmp_path)
    filled.add(source(expected=refuse))
    assert filled.left_out == {"one": "numpy: Encountered unresolved custom op: Sinh. See instructions."}


def test_what_does_not_compile_is_left_out_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> bytes:
        raise DeviceError("no compilers")

    monkeypatch.setattr(folder_module, "compiled", refuse)
    filled = folder(tmp_path)
    filled.add(source())
    assert filled.cases == [] and set(filled.left_out.values()) == {"sm_90: no compilers"}


def main(monkeypatch: pytest.MonkeyPatch, names: Sequence[str], *arguments: str) -> int:
    """The command, with one bundle: the source named "one" and these models."""
    monkeypatch.setattr(command, "BUNDLES", {"first": (names, lambda: [source()])})
    return command.main(list(arguments))


def test_models_come_smallest_first_and_absent_ones_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("large", "real/small", "absent")
    (tmp_path / "real").mkdir()
    (tmp_path / "large.tflite").write_bytes(two_outputs() + bytes(9000))
    (tmp_path / "real" / "small.tflite").write_bytes(convolution())
    found = [each for each in networks(tmp_path, names) if each.batch == 1]
    assert [each.name for each in found] == ["small", "large"] and all(each.group == MODEL for each in found)
    compile_as(monkeypatch, b"a program")
    where = ("--models", str(tmp_path))
    assert main(monkeypatch, names, "--output", str(tmp_path / "out"), *where) == 1
    assert "left out: absent" in capsys.readouterr().err
    cases = read_bundle(tmp_path / "out").cases
    assert [case.name for case in cases if case.batch == 1] == ["one", "small", "large"]
    few = ("--output", str(tmp_path / "few"), "--only", "large", "--only", "s*l")
    assert main(monkeypatch, names, *few, *where) == 0
    assert [case.name for case in read_bundle(tmp_path / "few").cases] == ["small", "large"]


def test_an_unknown_architecture_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(["--output", str(tmp_path / "out"), "--architectures", "sm_1"])
    assert ended.value.code == 2 and "sm_1" in capsys.readouterr().err


def test_weights_of_16_bits_widen_the_limit_of_float32() -> None:
    model = ModelBuilder()
    wide = model.op("DEQUANTIZE", [model.constant(np.ones(4, np.float16))], (4,))
    model.output(model.op("ADD", [model.input((4,)), wide], (4,)))
    assert limits(convolution()) == {"float32": 1e-5, "tf32": 2e-3, "float16": 2e-3}
    assert limits(model.finish()) == {"float32": 1e-4, "tf32": 2e-3, "float16": 2e-3}


def test_a_form_is_compiled_for_the_gpu_that_was_asked_for() -> None:
    pytest.importorskip("numba.cuda", reason="needs numba-cuda, the extra 'cuda'")
    content = model_of(Case(((5,), ints(0))).graph(OPS["SUM"]))
    program = read(compiled(source(content=content), "sm_80:56", "float16"))
    assert (program.target, program.features, program.part("multiprocessors")) == ("cuda", "sm_80", "56")
    assert program.part("precision") == "float16"


def test_a_program_is_kept_without_the_weights_it_shares_and_with_what_its_launches_should_take() -> None:
    pytest.importorskip("numba.cuda", reason="needs numba-cuda, the extra 'cuda'")
    *_, many = network("net", convolution(), ("float32",), (1, 8))
    content = compiled(many, "sm_90", "float32")
    kept, entry = stored(many, content, "sm_90", "float32", "path")
    whole, zeros = read(content), read(kept)
    assert not any(zeros.weights) and len(zeros.weights) == len(whole.weights)
    assert entry.weights == whole.weights_hash
    assert [family for family, _ in entry.launches] == ["contract_ffma"] and entry.launches[0][1] > 1000
    assert whole.inputs[0].shape == (8, 8, 8, 3)
    assert stored(replace(many, shared=""), content, "sm_90", "float32", "path")[0] == content


def test_a_model_that_would_run_on_litert_is_refused() -> None:
    with pytest.raises(JitDelegateError, match=r"it is not compiled as a whole: .*FAKE_QUANT"):
        compiled(source(content=uncompiled()), "sm_90", "float32")


def test_the_example_takes_any_number_of_images() -> None:
    content = mobilenet_v1(32, 0.25)
    images = np.random.default_rng(0).random((3, 32, 32, 3), np.float32)
    (together,) = litert_outputs(content, [images])
    assert together.shape == (3, 1001)
    for image, found in zip(images, together, strict=True):
        np.testing.assert_allclose(litert_outputs(content, [image[None]])[0][0], found, rtol=1e-5)
