"""The precision "auto": which one is chosen, what the report says, and that the next start does not measure again."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jitdelegate
from jitdelegate.base.options import DelegateOptions
from jitdelegate.commands import warm
from jitdelegate.engine import load_path
from jitdelegate.engine.choose_precision import ROUNDS, fastest, largest_error
from jitdelegate.engine.load_path import find_key
from jitdelegate.engine.model_file import ModelFile
from jitdelegate.errors import DeviceError, OptionError, ProgramError
from jitdelegate.program.program import Program
from jitdelegate.program.read import read
from jitdelegate.runtime.cache.key import CHOSEN, INPUTS, Key, fingerprint, variant_parts
from jitdelegate.runtime.cuda import toolchain as toolchain_module
from jitdelegate.targets.cuda.target import CudaDevice
from jitdelegate.tflite.write import ModelBuilder
from tests.gpu.stub.compiler import Compiler, install_compiler, scale_and_shift_model
from tests.gpu.stub.install import install
from tests.gpu.stub.library import Library
from tests.gpu.stub.programs import SCALE, SHIFT, library

X = np.linspace(1, 2, 6, dtype=np.float32).reshape(2, 3)
LAUNCHES = {"float32": 4, "tf32": 3, "float16": 1, "bfloat16": 2}
"""Of the program in each precision: how often it scales, which is how long it takes."""
ERRORS = {"float32": 0.0, "tf32": 1e-4, "float16": 2e-3, "bfloat16": 3e-2}


class Precise(Compiler):
    """Compiles programs that take as long and are as wrong as their precision says."""

    refused: tuple[str, ...] = ()

    def _program(self, key: Key) -> Program:
        precision = key.part(CHOSEN).partition(":")[0] or key.part("precision")
        if precision in self.refused:
            raise DeviceError(f"the GPU has no {precision}")
        program = super()._program(key)
        scaling, shifting = program.launches
        error = ERRORS[precision] * (SHIFT + SCALE * 1.5)
        bits = struct.unpack("<I", struct.pack("<f", SHIFT + error))[0]
        values = (*shifting.values[:2], bits, shifting.values[3])
        program.launches = (*[scaling] * LAUNCHES[precision], shifting.altered(values=values))
        return program


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Library:
    """A GPU whose clock is the host's."""
    stub = install(monkeypatch, library())
    monkeypatch.setattr("jitdelegate.engine.choose_precision.now", lambda: stub._clock)
    return stub


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> Precise:
    made = Precise()
    install_compiler(monkeypatch, made)
    return made


def load(folder: Path, **options: Any) -> jitdelegate.Model:
    return jitdelegate.load(scale_and_shift_model(), serialization_dir=folder, **{"precision": "auto", **options})


@pytest.mark.parametrize(
    ("bound", "expected"), [(0.01, "float16"), (1e-3, "tf32"), (1e-6, "float32"), (0.1, "float16")]
)
def test_the_fastest_precision_under_the_bound_is_taken_once_and_told(
    bound: float, expected: str, compiler: Precise, gpu: Library, tmp_path: Path
) -> None:
    for start in range(2):
        before = gpu.launches.total()
        with load(tmp_path, precision_bound=bound) as model:
            report = model.report()
            np.testing.assert_allclose(np.asarray(model(X)).ravel(), (X * SCALE + SHIFT).ravel(), rtol=0.01)
        (note,) = report.notes
        assert note.startswith(f"precision is 'auto': {expected}: error of tf32 ")
        assert report.cache.hit == bool(start)
        if start:
            assert gpu.launches.total() - before == LAUNCHES[expected] + 1  # the one call
    assert [key.part("precision") for key in compiler.keys] == [*LAUNCHES, "auto"]
    assert read(Path(report.cache.path).read_bytes()).part(CHOSEN).startswith(f"{expected}: ")
    assert gpu.leaks() == []


def test_precisions_run_in_turns_and_those_beyond_the_bound_once(
    compiler: Precise, gpu: Library, tmp_path: Path
) -> None:
    load(tmp_path, precision_bound=1e-3).close()
    scaled = sum(LAUNCHES.values()) + ROUNDS * (LAUNCHES["float32"] + LAUNCHES["tf32"])
    assert gpu.launches["scale"] == scaled


def test_a_precision_that_the_gpu_lacks_is_left_out(compiler: Precise, gpu: Library, tmp_path: Path) -> None:
    compiler.refused = ("tf32", "bfloat16")
    with load(tmp_path) as model:
        (note,) = model.report().notes
    assert "tf32" not in note and note.startswith("precision is 'auto': float16: error of float16 0.0")


def test_what_is_not_compiled_whole_is_float32(compiler: Precise, gpu: Library, tmp_path: Path) -> None:
    compiler.reason = "Something is missing."
    with load(tmp_path, target="cuda") as model:
        assert model.report().notes == (
            "precision is 'auto': float32: not measured, since not all of the model is compiled",
        )


def test_given_inputs_are_run(compiler: Precise, gpu: Library, tmp_path: Path) -> None:
    path, wrong = tmp_path / "samples.npz", tmp_path / "wrong.npz"
    np.savez(path, x=X)
    np.savez(wrong, x=X.T)
    load(tmp_path, precision_inputs=path).close()
    with pytest.raises(OptionError, match=r"has float32\[3, 2\] for 'x', expected float32\[2, 3\]"):
        load(tmp_path, precision_inputs=wrong)
    np.savez(wrong, y=X)
    with pytest.raises(OptionError, match="has y, but an input of the model is 'x'"):
        load(tmp_path, precision_inputs=wrong)
    with pytest.raises(OptionError, match="which cannot be read"):
        load(tmp_path, precision_inputs=tmp_path / "none.npz")
    assert gpu.leaks() == []


def test_the_choice_follows_the_content_of_the_given_inputs(compiler: Precise, gpu: Library, tmp_path: Path) -> None:
    path, other = tmp_path / "samples.npz", tmp_path / "other.npz"
    for values, given, measures in ((X, path, True), (X, other, False), (2 * X, path, True), (X, other, False)):
        np.savez(given, x=values)
        before = len(compiler.keys)
        load(tmp_path, precision_inputs=given).close()
        assert (len(compiler.keys) > before) == measures, (given, values)


def test_a_file_of_inputs_that_cannot_be_read_is_one_error_that_names_it(
    compiler: Precise, gpu: Library, tmp_path: Path
) -> None:
    path = tmp_path / "samples.npz"
    np.savez_compressed(path, x=X)
    whole = path.read_bytes()
    np.save(tmp_path / "one.npy", X)
    damaged = (whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :] for at in range(0, len(whole), 7))
    refused = 0
    for content in (b"", whole[:100], (tmp_path / "one.npy").read_bytes(), *damaged):
        path.write_bytes(content)
        try:
            load(tmp_path, precision_inputs=path).close()  # some bytes of the archive mean nothing to it
        except OptionError as error:
            refused += 1
            assert f"precision_inputs is {str(path)!r}, which " in str(error)
    assert refused > 20
    compiler.keys.clear()
    for missing in (tmp_path / "none.npz", "nu\0ll.npz"):
        with pytest.raises(OptionError, match=r"precision_inputs is '.*\.npz', which cannot be read: \w+"):
            load(tmp_path, precision_inputs=missing)
    assert compiler.keys == [] and gpu.leaks() == []


def test_a_file_of_inputs_that_changes_after_the_model_was_opened_is_not_measured(
    compiler: Precise, gpu: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "samples.npz"
    np.savez(path, x=X)
    monkeypatch.setattr("jitdelegate.targets.precision.fingerprint", lambda _: "0" * 32)
    with pytest.raises(OptionError, match=r"samples.npz', which has changed since the model was opened"):
        load(tmp_path, precision_inputs=path)
    assert compiler.keys == []


def test_the_inputs_are_read_once_for_all_programs_of_a_model(compiler: Precise, gpu: Library, tmp_path: Path) -> None:
    path = tmp_path / "samples.npz"
    np.savez(path, x=X)
    known = fingerprint(path)
    options = DelegateOptions(precision="auto", precision_inputs=path, serialization_dir=tmp_path)
    main = load_path.load(ModelFile(scale_and_shift_model(), options))
    path.unlink()
    compiler.keys.clear()
    load_path.recompile(main, main.session, ProgramError("somebody damaged it"))
    further = load_path.specialize(main, variant_parts(0, ((2, 3),)))
    assert [key.part(INPUTS) for key in compiler.keys] == [known] * 2
    assert {key.part(CHOSEN) for key in compiler.keys} == {main.program.part(CHOSEN)} != {""}
    further.close()
    main.close()


def test_bound_and_inputs_are_parts_of_the_key_and_the_choice_names_no_entry(gpu: Library, tmp_path: Path) -> None:
    inputs = tmp_path / "a.npz"
    inputs.write_bytes(b"any")
    device = CudaDevice("sm_90").target.find_device(DelegateOptions())

    def key(**options: Any) -> Key:
        return find_key(device, DelegateOptions(**{"precision": "auto", **options}), "0")

    keys = [key(), key(precision_bound=0.02), key(precision_inputs=inputs), key(precision="float16")]
    assert len({each.entry_name() for each in keys}) == 4
    chosen = keys[0].changed(CHOSEN, "float16: error")
    assert chosen.entry_name() == keys[0].entry_name() and keys[0].difference(chosen.parts) is None
    assert [name for name, _ in device.precisions(keys[0])] == list(LAUNCHES)
    assert device.precisions(chosen) == device.precisions(keys[3]) == ()
    assert dict(device.precisions(keys[0]))["float16"].parts == keys[3].parts


def test_numpy_computes_in_float32_and_another_machines_gpu_is_not_measured(
    compiler: Precise, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with load(tmp_path, target="reference") as model:
        assert model.report().ignored_options == ("precision",)
    model_path = tmp_path / "model.tflite"
    model_path.write_bytes(scale_and_shift_model())
    arguments = [str(model_path), "--serialization-dir", str(tmp_path), "--target", "cuda:sm_90"]
    assert warm.main([*arguments, "--precision", "auto"]) == 0
    assert "float32 in place of auto, since precisions are measured on this machine only" in capsys.readouterr().err
    assert [key.part("precision") for key in compiler.keys if key.part("target") == "cuda"] == ["float32"]


def test_where_nothing_can_compile_the_program_in_float32_runs(
    compiler: Precise, gpu: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(tmp_path, precision="float32").close()
    monkeypatch.setattr(toolchain_module, "installed_toolchain", lambda: "")
    with load(tmp_path) as model:
        assert model.report().cache.hit
        assert "the program computes in float32, and is not tuned or measured" in model.report().notes[0]


def test_hardly_faster_is_not_worth_an_error() -> None:
    errors = {"float32": 0.0, "tf32": 1e-4, "float16": 1e-3}
    assert fastest({"float32": 1.0, "tf32": 0.98, "float16": 0.975}, errors) == "float32"
    assert fastest({"float32": 1.0, "tf32": 0.51, "float16": 0.5}, errors) == "tf32"
    assert fastest({"float32": 1.0, "tf32": 0.6, "float16": 0.5}, errors) == "float16"


def test_the_error_is_the_largest_of_all_outputs() -> None:
    one, nan, big = np.ones(4, np.float32), np.array([1, np.nan], np.float32), np.array([1, np.inf], np.float32)
    assert largest_error([one, one * 1.1], [one, one]) == pytest.approx(0.1)
    assert largest_error([np.array([1, 2, 3, 4])], [np.array([1, 2, 3, 5])]) == 0.25
    assert largest_error([nan, big], [nan, big]) == 0
    assert largest_error([nan], [nan[::-1]]) == largest_error([big], [nan]) == largest_error([nan], [one[:2]]) == np.inf
    assert largest_error([one], [0 * one]) == np.inf and largest_error([0 * one], [0 * one]) == 0


def test_further_programs_of_a_model_have_its_precision(compiler: Precise, gpu: Library) -> None:
    builder = ModelBuilder()
    builder.output(builder.op("RELU", [builder.input((2, 3), name="x")], (2, 3)))
    delegate = jitdelegate.GpuDelegate(serialization_dir=False, precision="auto")
    interpreter = jitdelegate.Interpreter(model_content=builder.finish(), experimental_delegates=[delegate])
    interpreter.allocate_tensors()
    interpreter.resize_tensor_input(0, (4, 3))
    interpreter.allocate_tensors()
    *_, main, further = compiler.keys
    assert further.shapes == ((4, 3),) and len(compiler.keys) == len(LAUNCHES) + 2
    assert further.part(CHOSEN) == main.part(CHOSEN) != ""
