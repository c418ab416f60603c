"""What is prepared for the check on a GPU machine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from jitdelegate.errors import DeviceError, JitDelegateError
from jitdelegate.model.write import ModelBuilder
from jitdelegate.ops import OPS
from jitdelegate.ops.case import Case, ints
from jitdelegate.program.read import read
from scripts import prepare_gpu_check
from scripts.gpu_check.bundle import FORM, MODEL, read_bundle
from scripts.prepare_gpu_check import Folder, Source, between_pools, forms, limits, main, models
from tests.front.small_models import convolution, two_outputs, uncompiled
from tests.ops.litert import model_of, run_litert

POOL = Case(((1, 6, 6, 3),), {"stride_w": 2, "stride_h": 2, "filter_width": 2, "filter_height": 2})


def source(content: bytes = b"", name: str = "one", feeds: int = 1) -> Source:
    values = [np.zeros((1, 8, 8, 3), np.float32)] * feeds
    return Source(name, FORM, content or convolution(), values, lambda: [np.ones(4, np.float32)], "numpy")


def folder(path: Path, room: int = 1 << 20) -> Folder:
    return Folder(path / "bundle", ["sm_90"], room)


def compile_as(monkeypatch: pytest.MonkeyPatch, program: bytes) -> None:
    """Every model compiles to this program."""
    monkeypatch.setattr(prepare_gpu_check, "compiled", lambda content, gpu, precision: program)


def test_every_operator_with_cases_has_a_form_and_images_also_lie_between_layers() -> None:
    names = [each.name for each in forms()]
    assert len(set(names)) == len(names)
    assert {name for name, op in OPS.items() if op.cases and not op.custom} <= {name.split()[1] for name in names}
    assert sum(name.endswith("CONV_2D between layers") for name in names) > 10


@pytest.mark.parametrize("name", ["CONV_2D", "TRANSPOSE_CONV", "ADD", "RESIZE_BILINEAR"])
def test_a_form_between_layers_expects_what_litert_computes(name: str) -> None:
    ended = f"{name} between layers"
    each = next(one for one in forms() if one.name.endswith(ended))
    (expected,) = each.expected()
    np.testing.assert_allclose(run_litert(each.content, list(each.feeds)), expected, rtol=1e-5, atol=1e-5)
    assert all(np.array_equal(feed, feed.astype(np.float16)) for feed in each.feeds)
    assert each.precisions == ("float16",)


def test_pools_around_a_graph_change_nothing() -> None:
    graph = POOL.graph(OPS["MAX_POOL_2D"])
    outer = between_pools(graph)
    assert [node.op for node in outer.nodes] == ["MAX_POOL_2D"] * 3
    np.testing.assert_array_equal(run_litert(model_of(outer), POOL.feeds()), run_litert(model_of(graph), POOL.feeds()))


def test_what_is_kept_can_be_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_as(monkeypatch, b"a program")
    filled = folder(tmp_path)
    filled.add(source(feeds=2))
    filled.finish()
    found = read_bundle(tmp_path / "bundle")
    first, second = found.prepared("sm_90")
    assert (first.precision, second.precision) == ("float32", "float16")
    assert first.content == b"a program" and first.outputs == [np.ones(4, np.float32).tobytes()]
    assert first.inputs == 2 * [bytes(4 * 8 * 8 * 3)]
    files = [path for path in (tmp_path / "bundle").rglob("*.*") if path.name != "manifest.json"]
    assert filled.nbytes == sum(path.stat().st_size for path in files)


def test_what_finds_no_room_is_left_out_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_as(monkeypatch, bytes(np.random.default_rng(0).bytes(3000)))
    filled = folder(tmp_path, room=5000)
    filled.add(source())
    assert list(filled.cases[0].programs) == ["sm_90 float32"]
    assert list(filled.left_out) == ["one, float16"] and "room" in filled.left_out["one, float16"]


def test_inputs_and_outputs_take_room_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_as(monkeypatch, b"a program")
    filled = folder(tmp_path, room=700)
    filled.add(source())
    assert filled.cases == [] and filled.nbytes == 0


def test_what_does_not_compile_is_left_out_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(content: bytes, gpu: str, precision: str) -> bytes:
        raise DeviceError("no compilers")

    monkeypatch.setattr(prepare_gpu_check, "compiled", refuse)
    filled = folder(tmp_path)
    filled.add(source())
    assert filled.cases == [] and set(filled.left_out.values()) == {"sm_90: no compilers"}


def test_models_come_smallest_first_and_absent_ones_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(prepare_gpu_check, "MODELS", ("large", "real/small", "absent"))
    (tmp_path / "real").mkdir()
    (tmp_path / "large.tflite").write_bytes(two_outputs() + bytes(9000))
    (tmp_path / "real" / "small.tflite").write_bytes(convolution())
    assert [each.name for each in models(tmp_path)] == ["small", "large"]
    assert all(each.group == MODEL for each in models(tmp_path))
    compile_as(monkeypatch, b"a program")
    monkeypatch.setattr(prepare_gpu_check, "forms", lambda: iter(()))
    monkeypatch.setattr(prepare_gpu_check, "example", source)
    status = main(["--output", str(tmp_path / "out"), "--models", str(tmp_path)])
    assert status == 1 and "left out: absent" in capsys.readouterr().err
    assert [case.name for case in read_bundle(tmp_path / "out").cases] == ["one", "small", "large"]
    assert main(["--output", str(tmp_path / "few"), "--models", str(tmp_path), "--only", "l*", "--only", "s*"]) == 0
    assert [case.name for case in read_bundle(tmp_path / "few").cases] == ["small", "large"]


def test_an_unknown_architecture_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--output", str(tmp_path / "out"), "--architectures", "sm_1"])
    assert ended.value.code == 2 and "sm_1" in capsys.readouterr().err


def test_weights_of_16_bits_widen_the_limit_of_float32() -> None:
    model = ModelBuilder()
    wide = model.op("DEQUANTIZE", [model.constant(np.ones(4, np.float16))], (4,))
    model.output(model.op("ADD", [model.input((4,)), wide], (4,)))
    assert limits(convolution()) == {"float32": 1e-5, "float16": 2e-3}
    assert limits(model.finish()) == {"float32": 1e-4, "float16": 2e-3}


def test_a_form_is_compiled_for_the_gpu_that_was_asked_for() -> None:
    pytest.importorskip("numba.cuda", reason="needs numba-cuda, the extra 'cuda'")
    content = model_of(Case(((5,), ints(0))).graph(OPS["SUM"]))
    program = read(prepare_gpu_check.compiled(content, "sm_80", "float16"))
    assert (program.target, program.features) == ("cuda", "sm_80")
    assert dict(program.key)["precision"] == "float16"


def test_a_model_that_would_run_on_litert_is_refused() -> None:
    with pytest.raises(JitDelegateError, match=r"it is not compiled: .*FAKE_QUANT"):
        prepare_gpu_check.compiled(uncompiled(), "sm_90", "float32")
