"""HardwareAccelerator, Options and Environment: the hardware of a CompiledModel, and messages about options."""

from __future__ import annotations

import copy
import enum
import errno
import importlib
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert import cpu_options as litert_cpu_options
from ai_edge_litert import environment as litert_environment
from ai_edge_litert import gpu_options as litert_gpu_options
from ai_edge_litert import intel_openvino_options as litert_intel_options
from ai_edge_litert import options as litert_options
from ai_edge_litert import qualcomm_options as litert_qualcomm_options

import jitdelegate
from jitdelegate import (
    Accelerator,
    CompiledModel,
    CpuKernelMode,
    CpuOptions,
    Environment,
    EnvironmentOptions,
    GpuOptions,
    HardwareAccelerator,
    Options,
    TensorBuffer,
    qualcomm_options,
    targets,
)
from jitdelegate.base.litert_options import Group
from jitdelegate.base.options import DelegateOptions
from jitdelegate.errors import DelegateWarning, DelegationError, DeviceError, OptionError
from tests.api import small_models
from tests.api.test_cuda import EXPECTED, X
from tests.gpu.stub.compiler import Compiler, scale_and_shift_model
from tests.gpu.stub.library import Library


def run(model: CompiledModel) -> np.ndarray:
    (output,) = model.run([TensorBuffer.create_from_host_memory(X)])
    return output.read()


ON_CPU = (Accelerator.CPU,)
ON_GPU = (Accelerator.GPU, Accelerator.GPU | Accelerator.CPU)


@pytest.mark.parametrize("flags", [*ON_CPU, *ON_GPU], ids=repr)
def test_the_flags_choose_the_target(flags: int, compiler: Compiler, gpu: Library) -> None:
    with CompiledModel.create(scale_and_shift_model(), flags, serialization_dir=False) as model:
        np.testing.assert_allclose(run(model), EXPECTED, rtol=1e-6)
        assert model.report().target == ("cpu" if flags in ON_CPU else "cuda")
        assert model.is_fully_accelerated()
    assert gpu.leaks() == []


def test_a_gpu_alone_refuses_what_is_not_compiled_whole(compiler: Compiler, gpu: Library) -> None:
    compiler.reason = "it is too beautiful."
    with pytest.raises(DelegationError, match="MUL: it is too beautiful") as error:
        CompiledModel.from_buffer(scale_and_shift_model(), Accelerator.GPU)
    assert isinstance(error.value, RuntimeError)
    model = CompiledModel.from_buffer(scale_and_shift_model(), Accelerator.GPU | Accelerator.CPU)
    np.testing.assert_allclose(run(model), EXPECTED, rtol=1e-6)
    assert model.report().target == "cpu"


def test_a_gpu_alone_refuses_where_another_signature_is_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    from jitdelegate.tflite.write import ModelBuilder

    builder = ModelBuilder()
    second = builder.subgraph("second")
    options = {"min": 0.0, "max": 255.0, "num_bits": 8}
    for key, graph, op in (("one", builder, "RELU"), ("two", second, "FAKE_QUANT")):
        value = graph.input((1, 2), name=key)
        result = graph.op(op, [value], (1, 2), options=options if graph is second else {})
        graph.output(result)
        builder.signature(key, {"x": value}, {"y": result}, 0 if graph is builder else 1)
    content = builder.finish()
    with pytest.raises(DelegationError, match="FAKE_QUANT"):
        CompiledModel.create(content, target="cpu", require_full_delegation=True, serialization_dir=False)
    with pytest.warns(DelegateWarning, match="signature 'two'"):
        model = CompiledModel.create(content, serialization_dir=False)
        model.run(model.create_input_buffers("two"), signature="two")
    assert not model.is_fully_accelerated()


def test_a_machine_without_gpu_says_what_helps() -> None:
    with pytest.raises(DeviceError, match=r"no NVIDIA device.*GPU \| CPU runs the model on the CPU"):
        CompiledModel.create(scale_and_shift_model(), Accelerator.GPU)
    model = CompiledModel.create(scale_and_shift_model(), Accelerator.GPU | Accelerator.CPU)
    assert (model.report().target, model.report().fully_delegated) == ("cpu", True)


@pytest.mark.parametrize("flags", [Accelerator.NPU, Accelerator.NPU | Accelerator.GPU], ids=repr)
def test_an_npu_is_refused(flags: int) -> None:
    with pytest.raises(DeviceError, match=r"nothing runs on an NPU; NPU \| CPU"):
        CompiledModel.create(scale_and_shift_model(), flags)


def test_an_npu_beside_the_cpu_is_passed_over_with_a_warning() -> None:
    with pytest.warns(DelegateWarning, match="nothing runs on an NPU"):
        model = CompiledModel.create(scale_and_shift_model(), Accelerator.NPU | Accelerator.CPU)
    np.testing.assert_allclose(run(model), EXPECTED, rtol=1e-6)


@pytest.mark.parametrize("flags", [0, 8, -1, True])
def test_flags_that_are_none_are_refused(flags: int) -> None:
    with pytest.raises(OptionError, match="hardware_accelerators"):
        CompiledModel.from_buffer(scale_and_shift_model(), flags)


def test_options_and_flags_exclude_each_other() -> None:
    for options in (Options(), Options.create()):
        with pytest.raises(ValueError, match="either options or hardware_accel"):
            CompiledModel.from_buffer(scale_and_shift_model(), Accelerator.CPU, options=options)
    with pytest.raises(OptionError, match=r"jitdelegate\.Options"):
        CompiledModel.from_buffer(scale_and_shift_model(), options={"num_threads": 2})  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="cpu_options"):
        CompiledModel.from_buffer(scale_and_shift_model(), options=Options(cpu_options=GpuOptions()))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (Options(), {}),
        (Options(cpu_options=CpuOptions(num_threads=3)), {"num_threads": 3}),
        (Options(cpu_options=CpuOptions(num_threads=-1)), {}),
        (Options(cpu_options=CpuOptions(num_threads=500)), {"num_threads": 64}),
        (Options(cpu_options=CpuOptions(cpu_features="generic")), {"cpu_features": "generic"}),
        (Options(cpu_options=CpuOptions(kernel_mode=CpuKernelMode.REFERENCE)), {"quantized_rounding": "reference"}),
        (Options(cpu_options=CpuOptions(kernel_mode=CpuKernelMode.XNNPACK)), {}),
        (Options(Accelerator.GPU), {"hardware_accelerators": 2, "require_full_delegation": True}),
        (Options(3, gpu_options=GpuOptions(enforce_f32=True)), {"hardware_accelerators": 3}),
        (Options(gpu_options=GpuOptions(precision="bfloat16")), {"precision": "bfloat16"}),
        (Options(gpu_options=GpuOptions(precision=1)), {"precision": "float16"}),
        (Options(gpu_options=GpuOptions(precision=3)), {"precision": "float16"}),
        (Options(gpu_options=GpuOptions(precision=0)), {}),
        (Options(gpu_options=GpuOptions(precision=2, enforce_f32=True)), {}),
        (Options(gpu_options=GpuOptions(allow_src_quantized_fc_conv_ops=True)), {"quantized_execution": "dynamic"}),
        (Options(gpu_options=GpuOptions(serialization_dir="here")), {"serialization_dir": "here"}),
        (Options(gpu_options=GpuOptions(serialize_program_cache=False)), {"serialization_dir": False}),
        (Options(gpu_options=GpuOptions(model_cache_key="net")), {"model_token": "net"}),
        (Options(gpu_options=GpuOptions(model_token="net", model_cache_key="net")), {"model_token": "net"}),
        (
            Options(3, gpu_options=GpuOptions(preferred_device_substr="h100")),
            {"hardware_accelerators": 3, "device": "h100"},
        ),
        (Options(3, gpu_options=GpuOptions(backend="AUTOMATIC")), {"hardware_accelerators": 3}),
        (Options(gpu_options=GpuOptions(backend="litert")), {"target": "litert"}),
        (Options(gpu_options=GpuOptions(max_delegated_partitions=4)), {"max_delegated_partitions": 4}),
        (Options(gpu_options=GpuOptions(only_ops="ADD", profile=True)), {"only_ops": ("ADD",), "profile": True}),
    ],
    ids=str,
)
def test_groups_say_what_delegate_options_say(options: Options, expected: dict[str, Any]) -> None:
    usual = DelegateOptions(hardware_accelerators=1)
    found = DelegateOptions(hardware_accelerators=options.hardware_accelerators, **options.keywords())
    differing = {name for name in usual.__slots__ if getattr(found, name) != getattr(usual, name)}
    assert {name: getattr(found, name) for name in differing} == expected


@pytest.mark.parametrize(
    ("group", "values"),
    [
        (GpuOptions, {"enforce_f32": True, "precision": "float16"}),
        (GpuOptions, {"serialize_program_cache": False, "serialization_dir": "here"}),
        (GpuOptions, {"model_token": "net", "model_cache_key": "other"}),
        (GpuOptions, {"device": 0, "preferred_device_substr": "h100"}),
        (GpuOptions, {"precision": "float8"}),
        (GpuOptions, {"backend": "OPENCL"}),
        (GpuOptions, {"speed": 3}),
        (CpuOptions, {"num_threads": "many"}),
        (CpuOptions, {"kernel_mode": 7}),
    ],
)
def test_options_that_contradict_or_are_unknown_are_refused(group: type, values: dict[str, Any]) -> None:
    name = "gpu_options" if group is GpuOptions else "cpu_options"
    with pytest.raises(OptionError, match=str(next(iter(values))).replace("backend", "target")):
        CompiledModel.from_buffer(scale_and_shift_model(), options=Options(**{name: group(**values)}))


def test_every_option_can_be_given() -> None:
    given = {name: getattr(DelegateOptions(), name) for name in DelegateOptions.__slots__}
    reached = Options(gpu_options=GpuOptions(**{key: value for key, value in given.items() if key != "target"}))
    expected = {name for name, value in given.items() if value is not None} - {"target"}
    assert expected <= {*reached.keywords()}


def test_misspelt_options_are_refused() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'num_thread' \(did you mean num_threads\?\)"):
        Options().cpu_options.num_thread = 2  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match=r"thread \(did you mean num_threads\?\)"):
        CpuOptions(thread=2)  # type: ignore[call-arg]
    with pytest.raises(OptionError, match="did you mean precision"):
        CompiledModel.create(scale_and_shift_model(), precisoin="float16")


def test_the_report_names_options_that_mean_nothing() -> None:
    options = Options.create()
    options.cpu_options.xnnpack_weight_cache_path = "weights"
    options.cpu_options.kernel_mode = CpuKernelMode.BUILTIN
    options.gpu_options.constant_tensor_sharing = True
    options.gpu_options.priority = "low"
    options.qualcomm_options.log_level = 3
    environment = Environment.create(dispatch_library_path="libraries")
    model = CompiledModel.from_buffer(scale_and_shift_model(), options=options, environment=environment)
    assert model.report().notes == (
        "kernel_mode, xnnpack_weight_cache_path, constant_tensor_sharing, priority: LiteRT's own options, which change"
        " nothing here.",
        "qualcomm_options: no part of the model runs on an NPU.",
        "dispatch_library_path: LiteRT's libraries for NPUs are not used.",
    )
    assert model.environment is environment
    assert CompiledModel.create(scale_and_shift_model()).report().notes == ()


@pytest.mark.parametrize("theirs", [litert_options, litert_qualcomm_options, litert_intel_options])
def test_modules_have_litert_s_names_and_numbers(theirs: Any) -> None:
    ours = importlib.import_module(theirs.__name__.replace("ai_edge_litert", "jitdelegate"))
    named = {name: kind for name, kind in vars(theirs).items() if isinstance(kind, type)}
    kinds = {name: kind for name, kind in named.items() if kind.__module__.startswith("ai_edge_litert")}
    assert len(kinds) > 2 and kinds.keys() <= {*ours.__all__}
    for name, kind in kinds.items():
        mine = getattr(ours, name)
        if issubclass(kind, enum.Enum):
            assert dict(mine.__members__) == dict(kind.__members__)
        constants = {key: value for key, value in vars(kind).items() if isinstance(value, enum.EnumType)}
        assert all(dict(getattr(mine, key).__members__) == dict(value.__members__) for key, value in constants.items())
    with pytest.raises(AttributeError, match="has no attribute 'Qualcom'"):
        ours.Qualcom  # noqa: B018


def test_options_of_absent_hardware_are_taken_without_effect() -> None:
    for npu in (qualcomm_options, litert_qualcomm_options):
        options = Options(qualcomm_options=npu.QualcommOptions(profiling=npu.QualcommOptions.PROFILING.BASIC))
        assert options.qualcomm_options.profiling == 1
        model = CompiledModel.from_buffer(scale_and_shift_model(), options=options)
        assert model.report().notes == ("qualcomm_options: no part of the model runs on an NPU.",)
    options = Options()
    options.intel_openvino_options.configs_map["CACHE_DIR"] = "here"
    assert options.notes() == ["intel_openvino_options: no part of the model runs on an NPU."]
    assert Options().intel_openvino_options.configs_map == {} and Options().notes() == []
    with pytest.raises(TypeError):
        qualcomm_options.QualcommOptions(profilin=1)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("ours", "theirs"), [(CpuOptions, litert_cpu_options.CpuOptions), (GpuOptions, litert_gpu_options.GpuOptions)]
)
def test_groups_have_litert_s_fields_in_litert_s_order(ours: type[Group], theirs: Any) -> None:
    defaults = theirs()
    fields = list(theirs.__dataclass_fields__)
    made = ours(*(getattr(defaults, name) for name in fields))
    assert made == ours() == copy.copy(made)
    assert {name: getattr(made, name) for name in fields} == {name: getattr(defaults, name) for name in fields}
    assert repr(made).startswith(f"{ours.__name__}(")
    changed = ours(**{fields[0]: 2})
    assert changed != made and changed.given() == [fields[0]]


def test_environments_are_made_as_litert_s() -> None:
    for module in (jitdelegate, litert_environment):
        options = module.EnvironmentOptions("a", "b", "c")
        with module.Environment.create(options=options) as environment:
            assert (environment.options.runtime_path, environment.options.compiler_plugin_path) == ("a", "b")
        for wrong in ({"options": "x", "runtime_path": "y"}, {"options": options, "dispatch_library_path": "z"}):
            with pytest.raises(ValueError, match=r"twice|either options"):
                module.Environment.create(**wrong)
    with pytest.raises(ValueError, match="Environment is no longer valid"):
        CompiledModel.from_buffer(scale_and_shift_model(), environment=environment_that_is_closed())
    with pytest.raises(AttributeError):
        EnvironmentOptions().runtime_path = "other"


def environment_that_is_closed() -> Environment:
    environment = Environment.create(options="folder")
    environment.close()
    return environment


def test_an_environment_names_the_directory_of_programs(tmp_path: Path) -> None:
    shared, own = tmp_path / "shared", tmp_path / "own"
    environment = Environment.create(options=EnvironmentOptions(compiler_cache_dir=str(shared)))
    content = small_models.convolution()
    for _ in range(2):
        model = CompiledModel.from_buffer(content, environment=environment)
    assert model.report().cache.hit and len([*shared.glob("*.jitd")]) == 1
    options = Options(gpu_options=GpuOptions(serialization_dir=str(own)))
    CompiledModel.from_buffer(content, environment=environment, options=options)
    assert len([*own.glob("*.jitd")]) == len([*shared.glob("*.jitd")]) == 1


def test_names_are_litert_s() -> None:
    assert Accelerator is HardwareAccelerator
    assert [(one.name, int(one)) for one in HardwareAccelerator] == [("CPU", 1), ("GPU", 2), ("NPU", 4)]
    assert (CpuKernelMode.DELEGATE, CpuKernelMode.REFERENCE, CpuKernelMode.BUILTIN) == (0, 1, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Options(Accelerator.GPU) == Options(2) != Options()


def _failing_import(monkeypatch: pytest.MonkeyPatch, error: Exception, *names: str) -> None:
    """As where the system refuses to look for the files of some targets."""

    def load(name: str, *arguments: Any, **named: Any) -> Any:
        if name.split(".")[-2] in names:
            raise error
        return __import__(name, *arguments, **named)

    monkeypatch.setattr(targets, "__import__", load, raising=False)
    monkeypatch.setattr(targets, "may_be_here", lambda _: True)


UNREADABLE = [ModuleNotFoundError("No module named 'x'"), OSError(errno.EIO, "Input/output error")]


@pytest.mark.parametrize("error", UNREADABLE, ids=repr)
def test_a_target_that_cannot_be_read_is_left_out(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    _failing_import(monkeypatch, error, "cuda")
    with jitdelegate.load(small_models.convolution(), serialization_dir=False) as model:
        assert model.report().target == "cpu"
        assert f"the target 'cuda' cannot be loaded: {error}" in str(model.report())
    with pytest.raises(DeviceError, match="the target 'cuda' cannot be loaded"):
        jitdelegate.load(small_models.convolution(), target="cuda", serialization_dir=False)
    _failing_import(monkeypatch, error, "cuda", "cpu", "litert")
    with pytest.raises(DeviceError, match=r"no target can be used: the target 'cuda' cannot be loaded: .*'litert'"):
        jitdelegate.load(small_models.convolution(), serialization_dir=False)


@pytest.mark.parametrize("error", UNREADABLE, ids=repr)
def test_a_device_whose_modules_cannot_be_read_is_left_out(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise error

    monkeypatch.setattr(targets, "may_be_here", lambda _: True)
    monkeypatch.setattr(type(targets.target_named("cuda")), "find_device", refuse)
    with jitdelegate.load(small_models.convolution(), serialization_dir=False) as model:
        assert model.report().target == "cpu" and str(error) in str(model.report())
