"""Arguments of the commands that run a model, benchmark and diff: which model, options, inputs and shapes."""

from __future__ import annotations

import argparse
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from jitdelegate.base.options import DelegateOptions
from jitdelegate.commands.arguments import TARGETS, Target, options_file, target, threads
from jitdelegate.commands.flags import add_truth
from jitdelegate.commands.measurement.entry import Entry, Shape
from jitdelegate.engine.model_file import default_threads
from jitdelegate.errors import CacheWarning, DelegateWarning, OptionError

GPU = "cuda"
BACKENDS = ("", GPU)
"""Of --gpu_backend; TFLite's OpenCL and OpenGL are not there."""


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
        parser.error(f"could not open {given[0]!r}: {what}")
    found: str = given[0]
    return found


def add_options(parser: argparse.ArgumentParser) -> None:
    """How jitdelegate compiles the model: --target, --options, and benchmark_model's flags for delegates."""
    group = parser.add_argument_group("how jitdelegate runs the model")
    group.add_argument("--target", type=target, default=Target(), metavar="T", help=f"{TARGETS} (default: auto)")
    group.add_argument(
        "--options", type=options_file, default={}, metavar="FILE", help="any options of load, from JSON or TOML"
    )
    group.add_argument("--num_threads", type=threads, metavar="N", help=f"of every side (default: {default_threads()})")
    add_truth(group, "--use_gpu", "as --target=cuda")
    group.add_argument("--gpu_backend", choices=BACKENDS, metavar="B", help="cuda: as --target=cuda")
    add_truth(group, "--gpu_precision_loss_allowed", "compute in float16 on a GPU")
    add_truth(group, "--gpu_experimental_enable_quant", "false leaves quantized operators to LiteRT", "true")
    add_truth(group, "--gpu_inference_for_sustained_speed", "the option inference_preference")
    group.add_argument("--max_delegated_partitions", type=int, metavar="N", help="most partitions to compile")
    group.add_argument("--min_nodes_per_partition", type=int, metavar="N", help="smaller ones run on LiteRT")
    group.add_argument("--delegate_serialize_dir", metavar="D", help="the option serialization_dir")
    group.add_argument("--delegate_serialize_token", metavar="T", help="the option model_token")
    add_truth(group, "--require_full_delegation", "refuse a model with an operator that is not compiled")


def options_of(arguments: argparse.Namespace, **usual: Any) -> DelegateOptions:
    """The options that the arguments ask for; the file of --options comes after them, `usual` last.

    Raises:
        OptionError: they contradict each other, or one is refused.
    """
    is_gpu = arguments.use_gpu or arguments.gpu_backend
    named = arguments.target.name
    if arguments.target.devices:
        raise OptionError("--target names GPUs that are not here, expected a target of this machine")
    if is_gpu and named not in (None, GPU):
        raise OptionError(f"--use_gpu means --target=cuda, but --target is {named}")
    given = {
        "target": GPU if is_gpu else named,
        "is_precision_loss_allowed": arguments.gpu_precision_loss_allowed,
        "quantized_models_allowed": arguments.gpu_experimental_enable_quant,
        "inference_preference": "SUSTAINED_SPEED" if arguments.gpu_inference_for_sustained_speed else None,
        "max_delegated_partitions": arguments.max_delegated_partitions,
        "min_nodes_per_partition": arguments.min_nodes_per_partition,
        "serialization_dir": arguments.delegate_serialize_dir,
        "model_token": arguments.delegate_serialize_token,
        "require_full_delegation": arguments.require_full_delegation,
    }
    return DelegateOptions.from_keywords(given, {**usual, **arguments.options})


@contextmanager
def quiet() -> Iterator[None]:
    """No warnings about operators on LiteRT and about the cache: the commands tell both in their own words."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DelegateWarning)
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
    return {entry.place(name): shape for name, shape in arguments.shape}


def sizes(text: str) -> Shape:
    """1,224,224,3 as numbers; nothing is a scalar's."""
    parts = text.split(",") if text else []
    if not all(part.strip().isdecimal() and len(part) < 10 for part in parts):
        raise argparse.ArgumentTypeError(f"a shape is {text!r}, expected sizes such as 1,224,224,3")
    return tuple(map(int, parts))


def _named_shape(text: str) -> tuple[str, Shape]:
    name, equals, shape = text.rpartition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"it is {text!r}, expected NAME=SIZES, such as image=1,224,224,3")
    return name, sizes(shape)
