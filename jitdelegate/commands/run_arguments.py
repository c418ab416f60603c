"""Arguments of the commands that run a model, benchmark and diff: which model, options, inputs and shapes."""

from __future__ import annotations

import argparse
import os
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from jitdelegate.base.options import FIELDS, DelegateOptions
from jitdelegate.base.tables import complain
from jitdelegate.base.user_warning import PlainWarnings
from jitdelegate.commands.arguments import add_options_file, add_target, add_truth, threads
from jitdelegate.commands.measurement.entry import Entry, Shape
from jitdelegate.engine.model_file import default_threads
from jitdelegate.errors import CacheWarning, DelegateWarning, OptionError

GPU = "cuda"
BACKENDS = ("", GPU)
"""Of --gpu_backend; TFLite's OpenCL and OpenGL are not there."""
FLAGS = {
    "allow_fp16": ("is_precision_loss_allowed", "as gpu_precision_loss_allowed, which overrides it"),
    "gpu_precision_loss_allowed": ("is_precision_loss_allowed", "compute in float16 on a GPU"),
    "gpu_experimental_enable_quant": ("quantized_models_allowed", "false leaves quantized operators to LiteRT"),
    "gpu_inference_for_sustained_speed": ("inference_preference", "the option inference_preference"),
    "first_delegate_node_index": ("first_delegate_node_index", "operators before it run on LiteRT"),
    "last_delegate_node_index": ("last_delegate_node_index", "operators after it run on LiteRT"),
    "max_delegated_partitions": ("max_delegated_partitions", "most partitions to compile"),
    "min_nodes_per_partition": ("min_nodes_per_partition", "smaller ones run on LiteRT"),
    "delegate_serialize_dir": ("serialization_dir", "the option serialization_dir"),
    "delegate_serialize_token": ("model_token", "the option model_token"),
    "require_full_delegation": ("require_full_delegation", "refuse a model with an operator that is not compiled"),
}
"""benchmark_model's flags for options of jitdelegate: (option, help). Of two for one option, the later one counts."""
_TRUTHS = (
    *("allow_dynamic_profiling_buffer_increase", "convert_weights_on_gpu", "disable_delegate_clustering"),
    *("disable_nnapi_cpu", "enable_builtin_cast_constant_cache", "enable_perfetto", "enable_weight_sharing"),
    *("export_model_runtime_info", "gpu_cache_compiled_programs_only", "gpu_low_priority"),
    *("gpu_prefer_texture_weights", "gpu_serialize_external_tensors", "gpu_wait_for_weights_conversion_complete"),
    *("hexagon_profiling", "nnapi_allow_dynamic_dimensions", "nnapi_allow_fp16", "nnapi_use_burst_mode"),
    *("print_postinvoke_state", "print_preinvoke_state", "random_shuffle_benchmark_runs", "release_dynamic_tensors"),
    *("use_caching", "use_coreml", "use_cpu", "use_hexagon", "use_hexagon_ynn", "use_nnapi", "use_npu"),
    *("use_profiler", "use_xnnpack", "use_ynnpack", "xnnpack_force_fp16", "ynnpack_consistent_arithmetic"),
    *("ynnpack_fast_math", "ynnpack_no_excess_precision", "ynnpack_static_shape"),
)
_VALUES = (
    *("alloc_type_display_length", "compiler_cache_path", "compiler_plugin_library_path", "coreml_version"),
    *("cpu_mask", "dispatch_library_path", "external_delegate_options", "external_delegate_path"),
    *("gpu_invoke_loop_times", "gpu_model_cache_key", "gpu_serialization_dir", "gpu_wait_type", "hexagon_lib_path"),
    *("hexagon_ynn_lib_path", "max_profiling_buffer_entries", "mediatek_nerun_pilot_version"),
    *("memory_footprint_check_interval_ms", "model_runtime_info_output_file", "nnapi_accelerator_name"),
    *("nnapi_execution_preference", "nnapi_execution_priority", "nnapi_support_library_path"),
    *("optimize_memory_for_large_tensors", "option_benchmark_run_delay", "output_prefix", "output_proto_filepath"),
    *("perf_options_list", "stable_delegate_settings_file", "tensor_name_display_length"),
    *("tensor_type_display_length", "xnnpack_runtime_flags", "xnnpack_weight_cache_file_path"),
)
PASSED_OVER = sorted((*_TRUTHS, *_VALUES))
"""Flags of benchmark_model and its relatives, about other delegates and about LiteRT's interpreter: they are taken, so
that a command line for these tools works, and change nothing."""


def add_model(parser: argparse.ArgumentParser, *names: str) -> None:
    """MODEL, also as one of the flags."""
    parser.add_argument("model", nargs="?", metavar="MODEL", help="a .tflite file")
    parser.add_argument(*names, dest="graph", metavar="MODEL", help="the same")


def model_of(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> str:
    """The path of the model; wrong arguments end the process."""
    given = [each for each in (arguments.model, arguments.graph) if each is not None]
    if len({*given}) != 1:
        parser.error(f"{len(given)} models given, expected one, as MODEL or --graph=MODEL")
    if not os.path.isfile(given[0]):
        what = "it is no file" if os.path.exists(given[0]) else "there is no such file"
        parser.error(f"Could not open {given[0]!r}: {what}")
    found: str = given[0]
    return found


def add_options(parser: argparse.ArgumentParser) -> None:
    """How jitdelegate compiles the model: --target, --options, and benchmark_model's flags for delegates; those that
    change nothing are not in the help."""
    group = parser.add_argument_group("how jitdelegate runs the model")
    add_target(group)
    add_options_file(group, "any options of load, from JSON or TOML")
    group.add_argument("--num_threads", type=threads, metavar="N", help=f"of every side (default: {default_threads()})")
    add_truth(group, "--use_gpu", "as --target=cuda")
    group.add_argument("--gpu_backend", choices=BACKENDS, metavar="B", help="cuda: as --target=cuda")
    for name, (option, help) in FLAGS.items():
        field = FIELDS[option]
        if "bool | int" in field.given or field.choices:
            add_truth(group, f"--{name}", help, "true" if field.usual is True else "false")
        else:
            kind, metavar = (int, "N") if "int" in field.given else (str, name.rpartition("_")[2][0].upper())
            group.add_argument(f"--{name}", type=kind, metavar=metavar, help=help)
    for name in _TRUTHS:
        add_truth(group, f"--{name}", None)
    for name in _VALUES:
        group.add_argument(f"--{name}", help=argparse.SUPPRESS)


def tell_passed_over(arguments: argparse.Namespace) -> None:
    """Say in one line which of the given flags change nothing."""
    if given := [f"--{name}" for name in PASSED_OVER if getattr(arguments, name) is not None]:
        complain(f"without effect here: {', '.join(given)}")


def options_of(arguments: argparse.Namespace, **usual: Any) -> DelegateOptions:
    """The options that the arguments ask for; the file of --options comes after them, `usual` last.

    Raises:
        OptionError: they contradict each other, or one is refused.
    """
    is_gpu = arguments.use_gpu or arguments.gpu_backend
    named = arguments.target.name
    if arguments.target.devices:
        raise OptionError("--target names devices that are not here, expected a target of this machine")
    if is_gpu and named not in (None, GPU):
        raise OptionError(f"--use_gpu means --target=cuda, but --target is {named}")
    given = {
        "target": GPU if is_gpu else named,
        **{option: value for name, (option, _) in FLAGS.items() if (value := getattr(arguments, name)) is not None},
        "inference_preference": "SUSTAINED_SPEED" if arguments.gpu_inference_for_sustained_speed else None,
    }
    return DelegateOptions.from_keywords(given, {**usual, **arguments.options})


@contextmanager
def quiet() -> Iterator[None]:
    """No warnings about operators on LiteRT and about the cache: the commands tell both in their own words. That a GPU
    has failed and the CPU runs the model is told."""
    with PlainWarnings(DelegateWarning):
        warnings.filterwarnings("ignore", r"(?!.* runs on the CPU: )", DelegateWarning)
        warnings.simplefilter("ignore", CacheWarning)
        yield


def threads_of(arguments: argparse.Namespace, options: DelegateOptions) -> int:
    """Threads of every side."""
    found: int = arguments.num_threads or options.num_threads or default_threads()
    return found


def add_shape(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--shape",
        action="append",
        default=[],
        type=_named_shape,
        metavar="NAME=1,224,224,3",
        help="sizes of an input, by its name or number; once for each",
    )


def shapes_of(arguments: argparse.Namespace, entry: Entry) -> dict[int, Shape]:
    """The sizes of inputs by position.

    Raises:
        TensorError: no input has such a name.
    """
    return {entry.position(name): shape for name, shape in arguments.shape}


def sizes(text: str) -> Shape:
    """1,224,224,3 or 1x224x224x3 as numbers; nothing is a scalar's."""
    parts = text.replace("x", ",").split(",") if text else []
    if not all(part.strip().isdecimal() and len(part) < 10 for part in parts):
        raise argparse.ArgumentTypeError(f"a shape is {text!r}, expected sizes such as 1,224,224,3")
    return tuple(map(int, parts))


def named_shapes(text: str) -> dict[str, Shape]:
    """ids=1x128:mask=1x128 as the sizes of several inputs by name. A name may have a colon."""
    found = re.findall(r"(.+?)=([\dx,]*)(?::|$)", text)
    if ":".join(f"{name}={shape}" for name, shape in found) != text or not found:
        raise argparse.ArgumentTypeError(f"it is {text!r}, expected NAME=SIZES, such as ids=1x128:mask=1x128")
    return {name: sizes(shape) for name, shape in found}


def _named_shape(text: str) -> tuple[str, Shape]:
    name, equals, shape = text.rpartition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"it is {text!r}, expected NAME=SIZES, such as image=1,224,224,3")
    return name, sizes(shape)
