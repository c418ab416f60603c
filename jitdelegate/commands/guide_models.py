"""Small models with random weights, in place of those that guides and examples speak of; `write` makes their files."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from jitdelegate.ir.graph import Quant
from jitdelegate.tflite.write import GraphBuilder, ModelBuilder

CLASSES = 10
VOCABULARY, CONTEXT, WIDTH, PROMPT = 256, 32, 8, 8
"""Of the decoder: tokens that exist, rows of its cache, channels, and tokens that "prefill_8" takes."""


class _Layers:
    """Adds layers with random weights to a graph."""

    def __init__(self, graph: GraphBuilder, dice: np.random.Generator) -> None:
        self.graph = graph
        self._dice = dice

    def weights(self, *shape: int) -> int:
        return self.graph.constant((self._dice.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32))

    def convolution(self, image: int, shape: tuple[int, ...], channels: int, stride: int) -> int:
        """`image` of f32[1,H,W,`channels`] to `shape`, by windows of 3 by 3."""
        options = {"padding": "SAME", "stride_w": stride, "stride_h": stride, "fused_activation_function": "RELU"}
        filters = self.weights(shape[-1], 3, 3, channels)
        return self.graph.op("CONV_2D", [image, filters, self.weights(shape[-1])], shape, options=options)

    def dense(self, rows: int, shape: tuple[int, ...], channels: int) -> int:
        options = {"keep_num_dims": True}
        return self.graph.op("FULLY_CONNECTED", [rows, self.weights(shape[-1], channels), None], shape, options=options)

    def reshape(self, value: int, *shape: int, dtype: str = "float32") -> int:
        return self.graph.op("RESHAPE", [value, self.graph.constant(np.array(shape, np.int32))], shape, dtype=dtype)

    def mean_of_image(self, value: int, channels: int) -> int:
        axes = self.graph.constant(np.array([1, 2], np.int32))
        return self.graph.op("MEAN", [value, axes], (1, channels))


def classifier(size: int = 32, channels: int = 3, width: int | None = None, classes: int = CLASSES) -> bytes:
    """f32[?,size,width,channels] -> f32[?,classes], probabilities, with the signature "serving_default"."""
    model = ModelBuilder()
    layers = _Layers(model, np.random.default_rng(0))
    shape = (1, size, width or size, channels)
    image = model.input(shape, name="image", shape_signature=(-1, *shape[1:]))
    half = tuple(-(-extent // 2) for extent in shape[1:3])
    features = layers.convolution(image, (1, *half, 16), channels, 2)
    scores = layers.dense(layers.mean_of_image(features, 16), (1, classes), 16)
    result = model.op("SOFTMAX", [scores], (1, classes), options={"beta": 1.0}, name="probabilities")
    model.output(result)
    model.signature("serving_default", {"image": image}, {"probabilities": result})
    return model.finish()


def quantized_classifier() -> bytes:
    """i8[1,32,32,3] -> i8[1,10]: one convolution with int8 weights per channel, and the mean of each channel."""
    dice, model = np.random.default_rng(0), ModelBuilder()
    scales = tuple(dice.uniform(0.001, 0.01, CLASSES))
    image = model.input((1, 32, 32, 3), "int8", quant=Quant((0.0078125,), (0,)), name="image")
    quant = Quant(scales, (0,) * CLASSES)
    filters = model.constant(dice.integers(-127, 128, (CLASSES, 3, 3, 3)).astype(np.int8), quant=quant)
    quant = Quant(tuple(0.0078125 * scale for scale in scales), (0,) * CLASSES)
    bias = model.constant(np.zeros(CLASSES, np.int32), quant=quant)
    options = {"padding": "SAME", "stride_w": 2, "stride_h": 2, "fused_activation_function": "RELU"}
    quant = Quant((0.02,), (-128,))
    shape = (1, 16, 16, CLASSES)
    features = model.op("CONV_2D", [image, filters, bias], shape, dtype="int8", options=options, quant=quant)
    axes = model.constant(np.array([1, 2], np.int32))
    model.output(model.op("MEAN", [features, axes], (1, CLASSES), dtype="int8", quant=quant, name="scores"))
    return model.finish()


def partial() -> bytes:
    """f32[1,8,8,3] -> CONV_2D -> FAKE_QUANT, which nobody compiles -> f32[1,4,4,4]."""
    model = ModelBuilder()
    layers = _Layers(model, np.random.default_rng(0))
    features = layers.convolution(model.input((1, 8, 8, 3), name="image"), (1, 4, 4, 4), 3, 2)
    options = {"min": 0.0, "max": 6.0, "num_bits": 8}
    model.output(model.op("FAKE_QUANT", [features], (1, 4, 4, 4), options=options, name="levels"))
    return model.finish()


def detector() -> bytes:
    """f32[1,128,128,3] -> f32[1,896,16], f32[1,896,1]: boxes and scores of the anchors of MediaPipe's detector."""
    model = ModelBuilder()
    layers = _Layers(model, np.random.default_rng(0))
    image = model.input((1, 128, 128, 3), name="input")
    outputs = []
    for values in (16, 1):
        near = layers.convolution(image, (1, 16, 16, 2 * values), 3, 8)
        far = layers.convolution(image, (1, 8, 8, 6 * values), 3, 16)
        parts = [layers.reshape(near, 1, 512, values), layers.reshape(far, 1, 384, values)]
        outputs.append(model.op("CONCATENATION", parts, (1, 896, values), options={"axis": 1}))
    model.output(*outputs)
    return model.finish()


def segmenter(size: int = 65, classes: int = 21) -> bytes:
    """f32[1,size,size,3] -> f32[1,size,size,classes], scores of every pixel."""
    model = ModelBuilder()
    layers = _Layers(model, np.random.default_rng(0))
    small = -(-size // 4)
    scores = layers.convolution(model.input((1, size, size, 3)), (1, small, small, classes), 3, 4)
    sizes = model.constant(np.array([size, size], np.int32))
    options = {"align_corners": True}
    model.output(model.op("RESIZE_BILINEAR", [scores, sizes], (1, size, size, classes), options=options))
    return model.finish()


def decoder() -> bytes:
    """A decoder of one layer of attention, with the signatures and tensor names of LiteRT's converters.

    "prefill_8": tokens i32[1,8], input_pos i32[8], and the cache; "decode": tokens i32[1,1], input_pos i32[1], and the
    cache, to logits f32[1,1,256]. kv_cache_k_0 and kv_cache_v_0 are f32[1,32,1,8], inputs and outputs of both.
    """
    model = ModelBuilder()
    _decode(model, model, f"prefill_{PROMPT}", PROMPT, 0)
    _decode(model, model.subgraph("decode"), "decode", 1, 1)
    return model.finish()


def _decode(model: ModelBuilder, graph: GraphBuilder, key: str, count: int, number: int) -> None:
    layers = _Layers(graph, np.random.default_rng(0))
    tokens = graph.input((1, count), "int32", name=f"{key}_tokens")
    positions = graph.input((count,), "int32", name=f"{key}_input_pos")
    caches = {
        name: graph.input((1, CONTEXT, 1, WIDTH), name=f"{key}_{name}") for name in ("kv_cache_k_0", "kv_cache_v_0")
    }
    values = graph.op("GATHER", [layers.weights(VOCABULARY, WIDTH), tokens], (1, count, WIDTH), options={"axis": 0})
    start = _start(graph, positions)
    updated = {}
    for name, cache in caches.items():
        rows = layers.reshape(layers.dense(values, (1, count, WIDTH), WIDTH), 1, count, 1, WIDTH)
        inputs = [cache, rows, start]
        updated[name] = graph.op("DYNAMIC_UPDATE_SLICE", inputs, (1, CONTEXT, 1, WIDTH), name=f"{key}_{name}_output")
    graph.output(*updated.values())
    outputs = dict(updated)
    if key == "decode":
        outputs["logits"] = _attend(layers, values, positions, *updated.values())
        graph.output(outputs["logits"])
    model.signature(key, {"tokens": tokens, "input_pos": positions, **caches}, outputs, number)


def _start(graph: GraphBuilder, positions: int) -> int:
    """i32[4]: where the first token's row begins in the cache."""
    first = graph.op("STRIDED_SLICE", [positions, *_ends(graph)], (1,), dtype="int32")
    zero, zeros = graph.constant(np.zeros(1, np.int32)), graph.constant(np.zeros(2, np.int32))
    return graph.op("CONCATENATION", [zero, first, zeros], (4,), dtype="int32", options={"axis": 0})


def _ends(graph: GraphBuilder) -> list[int]:
    return [graph.constant(np.array([value], np.int32)) for value in (0, 1, 1)]


def _attend(layers: _Layers, values: int, positions: int, keys: int, content: int) -> int:
    """Logits of the one token, which attends to the rows of the cache up to its own."""
    graph = layers.graph
    query = layers.dense(values, (1, 1, WIDTH), WIDTH)
    scores = graph.op(
        "BATCH_MATMUL", [query, layers.reshape(keys, 1, CONTEXT, WIDTH)], (1, 1, CONTEXT), options={"adj_y": True}
    )
    rows = graph.constant(np.arange(CONTEXT, dtype=np.int32).reshape(1, 1, CONTEXT))
    seen = graph.op("LESS_EQUAL", [rows, positions], (1, 1, CONTEXT), dtype="bool")
    hidden = graph.constant(np.full((1, 1, CONTEXT), -1e9, np.float32))
    scores = graph.op("SELECT_V2", [seen, scores, hidden], (1, 1, CONTEXT))
    weights = graph.op("SOFTMAX", [scores], (1, 1, CONTEXT), options={"beta": 1.0})
    attended = graph.op("BATCH_MATMUL", [weights, layers.reshape(content, 1, CONTEXT, WIDTH)], (1, 1, WIDTH))
    return layers.dense(attended, (1, 1, VOCABULARY), WIDTH)


def photo(side: int = 32) -> bytes:
    """A PNG of side by side pixels, whose colours go from one corner to the other."""
    ramp = np.linspace(0, 255, side).astype(np.uint8)
    pixels = np.stack([*np.meshgrid(ramp, ramp), np.full((side, side), 128, np.uint8)], axis=-1)
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)  # 0: a row as it is
    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)  # 8 bits of red, green and blue
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    chunks = (struct.pack(">I", len(data)) + kind + data for kind, data in parts)
    checked = (chunk + struct.pack(">I", zlib.crc32(chunk[4:])) for chunk in chunks)
    return b"\x89PNG\r\n\x1a\n" + b"".join(checked)


FILES: Mapping[str, Callable[[], bytes]] = {
    "model.tflite": classifier,
    "quantized.tflite": quantized_classifier,
    "partial.tflite": partial,
    "decoder.tflite": decoder,
    "faces.tflite": detector,
    "keywords.tflite": lambda: classifier(49, 1, 10, 12),
    "photo.png": photo,
}
"""The files that guides use, by name."""


def write(folder: Path) -> list[Path]:
    """Writes `FILES` to a folder, which is made if it is missing; their paths.

    Raises:
        OSError: one cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in FILES.items():
        (folder / name).write_bytes(make())
    return [folder / name for name in FILES]
