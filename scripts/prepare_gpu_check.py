"""Compiles what `scripts/gpu_check.sh` runs on a GPU machine, here, where no GPU is needed.

    python -m scripts.prepare_gpu_check --output DIR [--architectures sm_90,...] [--only PATTERN ...]

DIR receives programs, inputs, the outputs that LiteRT or numpy computed, and a manifest. It holds graphs for the first
cases of every operator and some larger ones, an example MobileNet v1, and the reference models found in FOLDER
(default: JITDELEGATE_TEST_MODELS, or shared/models beside the checkout), the smaller the sooner, as far as there is
room. What found none goes into a folder of its own by --only 'palm_*' --only posenet_* and so on, and its results are
joined to the first ones by the --join of `scripts/gpu_check.sh`.
Exit status: 0 all is there, 1 something had to be left out, 2 wrong arguments.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np

from jitdelegate.cache.fingerprint import fingerprint
from jitdelegate.compiler import compile_model
from jitdelegate.demo import example_values
from jitdelegate.errors import JitDelegateError, OptionError
from jitdelegate.example import mobilenet_v1
from jitdelegate.ir.graph import Graph, Node
from jitdelegate.model.read import read as read_model
from jitdelegate.opened import options_key
from jitdelegate.ops import OPS
from jitdelegate.ops.case import Case as OpCase
from jitdelegate.ops.case import Weights, ints
from jitdelegate.options import Options
from jitdelegate.precompile import gpu_kinds
from jitdelegate.program.read import read as read_program
from scripts.gpu_check.bundle import EXAMPLE, FORM, MODEL, PRECISIONS, Bundle, Case, pack, write_bundle
from tests.ops.litert import model_of

MODELS = (
    "derived/mobilenet_v1_1.0_224_f32",
    "derived/posenet_mobilenet_v1_100_257_f32",
    "real/deeplabv3_257_mv_gpu",
    "real/pretrainedResnet",
    "real/pretrainedResnet_large_float",
    "real/vww_96_float",
    "real/prisma-net",
    "real/face_detection_short_range",
    "real/palm_detection_lite",
    "real/palm_detection_full",
    "real/hand_landmark_lite",
    "real/face_landmark",
    "real/iris_landmark",
    "real/toycar",
    "real/keyword_spotting_alexa.float32",
)
"""The reference models: all float models that run whole on the CPU target."""
FLOAT_LIMIT, HALF_WEIGHTS_LIMIT, HALF_LIMIT = 1e-5, 1e-4, 2e-3
LARGEST_HALF = 6e4
DEFAULT_MODELS = Path(__file__).resolve().parents[2] / "shared" / "models"
MEBIBYTES = 60.0
"""Of the whole folder; a GPU machine that takes a folder along may take no more than 64."""

UNIT = {"stride_w": 1, "stride_h": 1}
HALVED = {"stride_w": 2, "stride_h": 2}
LARGER: tuple[tuple[str, OpCase], ...] = (
    ("CONV_2D", OpCase(((1, 28, 28, 64), Weights((64, 3, 3, 64)), Weights((64,))), UNIT)),
    ("CONV_2D", OpCase(((1, 57, 57, 24), Weights((72, 3, 3, 24)), Weights((72,))), HALVED)),
    ("CONV_2D", OpCase(((1, 28, 28, 128), Weights((256, 1, 1, 128)), Weights((256,))), UNIT)),
    ("CONV_2D", OpCase(((1, 14, 14, 512), Weights((256, 1, 1, 512)), Weights((256,))), UNIT)),
    ("CONV_2D", OpCase(((1, 65, 65, 3), Weights((32, 7, 7, 3)), Weights((32,))), HALVED)),
    ("CONV_2D", OpCase(((1, 33, 33, 33), Weights((65, 3, 3, 33)), Weights((65,))), UNIT)),
    ("CONV_2D", OpCase(((3, 20, 20, 64), Weights((128, 3, 3, 16)), Weights((128,))), UNIT)),
    ("DEPTHWISE_CONV_2D", OpCase(((1, 28, 28, 128), Weights((1, 3, 3, 128)), Weights((128,))), UNIT)),
    ("DEPTHWISE_CONV_2D", OpCase(((1, 29, 29, 66), Weights((1, 5, 5, 66)), Weights((66,))), HALVED)),
    ("FULLY_CONNECTED", OpCase(((1, 1024), Weights((257, 1024)), Weights((257,))))),
    ("FULLY_CONNECTED", OpCase(((200, 333), Weights((129, 333)), Weights((129,))))),
    ("TRANSPOSE_CONV", OpCase((ints(1, 32, 32, 32), Weights((32, 3, 3, 64)), (1, 16, 16, 64)), HALVED)),
    ("SOFTMAX", OpCase(((64, 1001),), {"beta": 1.0})),
    ("MEAN", OpCase(((1, 17, 17, 320), ints(1, 2)))),
    ("RESIZE_BILINEAR", OpCase(((1, 9, 9, 21), ints(65, 65)))),
)
"""Cases whose tiles are full ones, beside the operator table's own, which are small."""
FIRST_CASES = 4
"""Of each operator; the others differ in shapes, which the simulator has seen."""
POINT = {**UNIT, "padding": "VALID", "filter_width": 1, "filter_height": 1}


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """A model with inputs and expected outputs, which are computed when asked for."""

    name: str
    group: str
    content: bytes
    feeds: Sequence[np.ndarray]
    expected: Callable[[], Sequence[np.ndarray]]
    reference: str
    precisions: Sequence[str] = PRECISIONS


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 all is there, 1 something was left out, 2 wrong arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, metavar="DIR")
    parser.add_argument("--architectures", default="sm_90", metavar="sm_90,...")
    parser.add_argument(
        "--models", type=Path, default=Path(os.environ.get("JITDELEGATE_TEST_MODELS", DEFAULT_MODELS)), metavar="FOLDER"
    )
    parser.add_argument("--only", action="append", metavar="PATTERN", help="of names; several are added up")
    parser.add_argument("--mebibytes", type=float, default=MEBIBYTES, help="most of the folder (default: %(default)g)")
    arguments = parser.parse_args(argv)
    try:
        gpus = gpu_kinds(arguments.architectures)
    except OptionError as error:
        parser.error(str(error))
    folder = Folder(arguments.output, gpus, int(arguments.mebibytes * 2**20))
    for source in [example(), *forms(), *models(arguments.models)]:
        if wanted(source.name, arguments.only):
            folder.add(source)
    for name in missing(arguments.models):
        if wanted(name, arguments.only):
            folder.left_out[name] = f"it is not in {arguments.models.name}"
    folder.finish()
    print(f"{len(folder.cases)} cases, {folder.nbytes / 2**20:.1f} MiB")
    for name, reason in folder.left_out.items():
        print(f"left out: {name}: {reason}", file=sys.stderr)
    return 1 if folder.left_out else 0


def wanted(name: str, patterns: Sequence[str] | None) -> bool:
    """Whether one of the shell's patterns fits the name; all are wanted where there are no patterns."""
    return patterns is None or any(fnmatchcase(name, pattern) for pattern in patterns)


def forms() -> Iterator[Source]:
    """The operators' first cases, larger ones, and each as it is in a network: between layers that store 16 bits."""
    cases = [(name, op_case) for name, op in OPS.items() if not op.custom for op_case in op.cases[:FIRST_CASES]]
    for number, (name, op_case) in enumerate([*cases, *LARGER]):
        graph, expected = op_case.graph(OPS[name]), op_case.outputs(OPS[name])
        yield _form(f"{number} {name}", graph, op_case.feeds(), expected)
        if _may_lie_between(graph, expected):
            yield _between(f"{number} {name} between layers", name, op_case)
    yield _network("small MobileNet v1", FORM, mobilenet_v1(32, 0.25))


def _form(name: str, graph: Graph, feeds: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> Source:
    return Source(name, FORM, model_of(graph), feeds, lambda: expected, "numpy, float64")


def _may_lie_between(graph: Graph, expected: Sequence[np.ndarray]) -> bool:
    """Whether pooling layers fit around it, and 16 bits hold what it answers."""
    ports = [graph.tensors[index] for index in (*graph.inputs, *graph.outputs)]
    images = all(len(port.shape) == 4 and port.dtype == "float32" for port in ports)
    return images and all(bool(np.all(np.abs(array) < LARGEST_HALF)) for array in expected)


def _between(name: str, op: str, op_case: OpCase) -> Source:
    """The case on inputs that 16 bits hold exactly, with 1x1 pooling, which changes no value, before and behind."""
    pairs = list(zip(op_case.inputs, op_case.arrays(), strict=True))
    feeds = [_rounded(array) for entry, array in pairs if isinstance(entry, tuple) and array is not None]
    fed = iter(feeds)
    arrays = [next(fed) if isinstance(entry, tuple) else array for entry, array in pairs]
    expected = OPS[op].reference(arrays, op_case.attrs)
    graph = between_pools(op_case.graph(OPS[op]))
    return replace(_form(name, graph, feeds, expected), precisions=("float16",))


def _rounded(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float16).astype(np.float32)


def between_pools(graph: Graph) -> Graph:
    """Every input and output of the graph behind a pooling layer of its own."""
    tensors, before, behind = list(graph.tensors), [], []

    def outer(index: int) -> int:
        tensors.append(replace(graph.tensors[index], name=f"{graph.tensors[index].name} outside"))
        return len(tensors) - 1

    inputs, outputs = tuple(map(outer, graph.inputs)), tuple(map(outer, graph.outputs))
    for outside, inside in zip(inputs, graph.inputs, strict=True):
        before.append(Node("MAX_POOL_2D", (outside,), (inside,), POINT))
    for inside, outside in zip(graph.outputs, outputs, strict=True):
        behind.append(Node("MAX_POOL_2D", (inside,), (outside,), POINT))
    return Graph(tuple(tensors), (*before, *graph.nodes, *behind), inputs, outputs)


def example() -> Source:
    """The network that the comparisons with other software run."""
    return _network(EXAMPLE, MODEL, mobilenet_v1())


def models(folder: Path) -> list[Source]:
    """The reference models that are there, the smallest first."""
    paths = [folder / f"{name}.tflite" for name in MODELS]
    there = sorted((path for path in paths if path.exists()), key=lambda path: path.stat().st_size)
    return [_network(path.stem, MODEL, path.read_bytes()) for path in there]


def missing(folder: Path) -> list[str]:
    """The reference models that are not there."""
    return [Path(name).name for name in MODELS if not (folder / f"{name}.tflite").exists()]


def _network(name: str, group: str, content: bytes) -> Source:
    graph = read_model(content).graphs[0]
    random = np.random.default_rng(0)
    inputs = [graph.tensors[index] for index in graph.inputs]
    feeds = [example_values(tensor.shape, tensor.dtype, random) for tensor in inputs]
    return Source(name, group, content, feeds, lambda: litert_outputs(content, feeds), "LiteRT's builtin kernels")


def litert_outputs(content: bytes, feeds: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The outputs of LiteRT's interpreter without XNNPACK."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    resolver = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    interpreter = Interpreter(model_content=content, experimental_op_resolver_type=resolver)
    interpreter.allocate_tensors()
    for detail, feed in zip(interpreter.get_input_details(), feeds, strict=True):
        interpreter.set_tensor(detail["index"], feed)
    interpreter.invoke()
    return [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]


@dataclass
class Folder:
    """The folder being filled.

    Attributes:
        room: bytes that it may hold.
        nbytes: bytes that it holds.
        cases, left_out: as in `Bundle`.
    """

    path: Path
    gpus: Sequence[str]
    room: int
    nbytes: int = 0
    cases: list[Case] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)

    def add(self, source: Source) -> None:
        """Compile the source and keep its programs and values, as far as there is room."""
        print(source.name, flush=True)
        outputs = [np.ascontiguousarray(value) for value in source.expected()]
        values = sum(array.nbytes for array in (*source.feeds, *outputs))
        programs = {}
        for gpu in self.gpus:
            for precision in source.precisions:
                path = self._program(source, gpu, precision, values)
                if path:
                    programs[f"{gpu} {precision}"] = path
        if programs:
            self.cases.append(self._case(source, outputs, programs))

    def _program(self, source: Source, gpu: str, precision: str, values: int) -> str:
        """The file of a program, "" where it is left out.

        Args:
            values: bytes that the case's inputs and outputs will take beside the programs.
        """
        name = f"{source.name}, {precision}"
        try:
            content = compiled(source.content, gpu, precision)
        except JitDelegateError as error:
            self.left_out[name] = f"{gpu}: {error}"
            return ""
        packed = pack(content)
        if self.nbytes + len(packed) + values > self.room:
            self.left_out[name] = f"{gpu}: it has {len(packed) / 2**20:.1f} MiB, more than there was room for"
            return ""
        return self._write(f"programs/{_plain(f'{name}, {gpu}')}.jitd.z", packed)

    def _case(self, source: Source, expected: Sequence[np.ndarray], programs: Mapping[str, str]) -> Case:
        name = _plain(source.name)
        inputs = [self._write(f"data/{name}-in-{k}.bin", feed.tobytes()) for k, feed in enumerate(source.feeds)]
        outputs = [self._write(f"data/{name}-out-{k}.bin", value.tobytes()) for k, value in enumerate(expected)]
        return Case(source.name, source.group, source.reference, inputs, outputs, programs, limits(source.content))

    def _write(self, name: str, content: bytes) -> str:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        self.nbytes += len(content)
        return name

    def finish(self) -> None:
        """Write the manifest."""
        self.path.mkdir(parents=True, exist_ok=True)
        write_bundle(Bundle(self.path, self.cases, self.left_out))


def compiled(content: bytes, gpu: str, precision: str) -> bytes:
    """The program of a model for a GPU.

    Raises:
        JitDelegateError: the model, or part of it, is not compiled.
    """
    options = Options(target="cuda", precision=precision)
    program = compile_model(content, options, options_key(options, fingerprint(content), gpu), {})
    found = read_program(program)
    if found.target != "cuda":
        reasons = dict.fromkeys(operator.reason for operator in found.operators if operator.reason)
        raise OptionError(f"it is not compiled: {' '.join(reasons)}")
    return program


def limits(content: bytes) -> Mapping[str, float]:
    """By precision, how far the outputs may be from LiteRT's, which widens 16-bit weights in another order."""
    tensors = read_model(content).graphs[0].tensors
    half = any(tensor.is_constant and tensor.dtype == "float16" for tensor in tensors)
    return {"float32": HALF_WEIGHTS_LIMIT if half else FLOAT_LIMIT, "float16": HALF_LIMIT}


def _plain(name: str) -> str:
    """The name for a file."""
    return "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in name)


if __name__ == "__main__":
    sys.exit(main())
