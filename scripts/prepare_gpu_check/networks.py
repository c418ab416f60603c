"""Whole networks: an example, and reference models, for single images and, where they can be resized, for batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from jitdelegate.commands.demo_model import mobilenet_v1
from jitdelegate.engine.example_values import example_values
from jitdelegate.errors import JitDelegateError
from jitdelegate.passes import FOLD
from jitdelegate.passes import run as run_passes
from jitdelegate.passes.specialize_subgraph import specialize_subgraph
from jitdelegate.passes.support import port_problem, unsupported
from jitdelegate.tflite.read import read as read_model
from scripts.gpu_check.bundle import BATCHES, EXAMPLE, FORM, MODEL, PRECISIONS, batch_of, named, order
from scripts.prepare_gpu_check.quantized import PRECISIONS as OF_QUANTIZED
from scripts.prepare_gpu_check.quantized import litert_feeds
from scripts.prepare_gpu_check.source import LITERT, Feed, Source
from scripts.quantized_models import is_integer

REFERENCE = (
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
    "generated/op_mix.int8",
    "real/mobilenet_v2_1.0_224_quant",
    "real/pretrainedResnet_quant",
    "real/toycar_int8_intio",
    "real/vww_96_int8",
)
"""Models that run whole on a GPU, float ones and quantized ones."""
FURTHER = (
    "generated/timm_efficientformerv2_s0.float32",
    "generated/torchaudio_conformer.float32",
    "generated/torchvision_shufflenet_v2.float32",
    "generated/u2net_lite.float32",
    "generated/unet_prelu_tconv_256.float32",
    "derived/coco_ssd_mobilenet_v1_300_f32",
    "real/pose_detection",
    "real/pose_landmark_full",
    "real/hand_landmark_full",
)
"""More of them: attention, many small launches, detection."""
USUAL = ("float32", "float16")
STEPS = 256
"""Inputs are multiples of 1 / STEPS, which 16 bits hold exactly."""
CLOSE = 1e-4
"""Within which LiteRT answers alike to an image alone and in a batch, of each value and of one."""


def example(size: int = 224, width: float = 1.0, batches: Sequence[int] = BATCHES) -> Iterator[Source]:
    """The network that the comparisons with other software run."""
    return network(EXAMPLE, mobilenet_v1(size, width), PRECISIONS, batches)


def small_example() -> Source:
    """The same network in small, among the forms."""
    (source,) = network("small MobileNet v1", mobilenet_v1(32, 0.25), USUAL, (1,))
    return replace(source, group=FORM, shared="")


def networks(folder: Path, names: Sequence[str]) -> Iterator[Source]:
    """The models that are there, the smallest first."""
    paths = [folder / f"{name}.tflite" for name in names]
    for path in sorted((path for path in paths if path.exists()), key=lambda path: path.stat().st_size):
        yield from network(path.stem, path.read_bytes(), USUAL, BATCHES)


def missing(folder: Path, names: Sequence[str]) -> list[str]:
    """The models that are not there."""
    return [Path(name).name for name in names if not (folder / f"{name}.tflite").exists()]


def network(name: str, content: bytes, precisions: Sequence[str], batches: Sequence[int]) -> Iterator[Source]:
    """A model as it is, and for every other number of images that it can be resized to."""
    graph = read_model(content).graphs[0]
    inputs = [graph.tensors[index] for index in graph.inputs]
    if is_integer(graph):
        precisions, batches = OF_QUANTIZED, ()
    random = np.random.default_rng(0)
    images = [[_value(tensor.shape, tensor.dtype, random) for tensor in inputs] for _ in range(2)]
    shapes = {batch: tuple((batch, *tensor.shape[1:]) for tensor in inputs) for batch in batches if batch > 1}
    has_images = all(tensor.shape[:1] == (1,) for tensor in inputs)
    resized = [batch for batch in shapes if has_images and is_compiled(content, shapes[batch])]
    for batch in (1, *resized):
        yield Source(
            name=named(name, batch),
            group=MODEL,
            content=content,
            feeds=_feeds(images) if resized else list(map(Feed, images[0])),
            expected=partial(litert_feeds, content, images[0])
            if is_integer(graph)
            else partial(_expected, content, images, batch if resized else 0),
            reference=LITERT,
            precisions=precisions,
            shared=name,
            shapes=shapes.get(batch, ()),
            batch=batch,
        )


def is_compiled(content: bytes, shapes: tuple[tuple[int, ...], ...]) -> bool:
    """Whether the model with inputs of these shapes is compiled as a whole."""
    try:
        model = specialize_subgraph(read_model(content), 0, shapes, ())
        folded = run_passes(model.graphs[0], passes=FOLD)
    except JitDelegateError:
        return False
    return not unsupported(model, folded) and not port_problem(folded)


def _value(shape: tuple[int, ...], dtype: str, random: np.random.Generator) -> np.ndarray:
    value = example_values(shape, dtype, random)
    return (np.round(value * STEPS) / STEPS).astype(value.dtype) if value.dtype.kind == "f" else value


def _feeds(images: Sequence[Sequence[np.ndarray]]) -> list[Feed]:
    """The inputs for both images."""
    return [Feed(np.concatenate(arrays), (arrays[0].nbytes,)) for arrays in zip(*images, strict=True)]


def _expected(content: bytes, images: Sequence[Sequence[np.ndarray]], batch: int) -> list[Feed]:
    """What LiteRT answers to a batch, 0 for a model that takes one image alone."""
    alone = [litert_outputs(content, image) for image in images[: 2 if batch else 1]]
    if not batch:
        return list(map(Feed, alone[0]))
    pairs = [np.stack(pair) for pair in zip(*alone, strict=True)]
    if batch == 1:
        return [Feed(pair, (pair[0].nbytes,)) for pair in pairs]
    fed = [
        np.frombuffer(batch_of(feed.array.tobytes(), feed.blocks, batch), feed.array.dtype).reshape(
            batch, *feed.array.shape[1:]
        )
        for feed in _feeds(images)
    ]
    together = litert_outputs(content, fed)
    return [_parted(whole, pair, batch) for whole, pair in zip(together, pairs, strict=True)]


def _parted(whole: np.ndarray, pair: np.ndarray, batch: int) -> Feed:
    """A batch's output as the outputs for two images, where it consists of blocks of them."""
    blocks = blocks_of(whole.ravel(), pair.reshape(2, -1), batch)
    return Feed(pair, tuple(size * pair.itemsize for size in blocks)) if blocks else Feed(whole)


def blocks_of(whole: np.ndarray, pair: np.ndarray, batch: int) -> list[int]:
    """The elements of an image's output that lie together in a batch's; [] where it does not consist of such blocks.

    Args:
        whole: of the batch, one axis.
        pair: of both images, two axes.
    """
    if whole.size != batch * pair.shape[1]:
        return []
    places, blocks, start = order(batch), list[int](), 0
    while start < pair.shape[1]:
        rest = whole[batch * start :][: pair.shape[1] - start]
        others = np.flatnonzero(~np.isclose(rest, pair[places[0], start:], CLOSE, CLOSE))
        size = int(others[0]) if others.size else rest.size
        block = whole[batch * start : batch * (start + size)].reshape(batch, size)
        if not size or not np.allclose(block, pair[places, start : start + size], CLOSE, CLOSE):
            return []
        blocks.append(size)
        start += size
    return blocks


def litert_outputs(content: bytes, feeds: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The outputs of LiteRT's interpreter without XNNPACK, its inputs resized to what they are fed."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    resolver = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    interpreter = Interpreter(model_content=content, experimental_op_resolver_type=resolver)
    for detail, feed in zip(interpreter.get_input_details(), feeds, strict=True):
        if tuple(detail["shape"]) != feed.shape:
            interpreter.resize_tensor_input(detail["index"], feed.shape)
    interpreter.allocate_tensors()
    for detail, feed in zip(interpreter.get_input_details(), feeds, strict=True):
        interpreter.set_tensor(detail["index"], feed)
    interpreter.invoke()
    return [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]
