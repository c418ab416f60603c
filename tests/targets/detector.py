"""A small detector: two scales, a residual, a resize, joined boxes and scores."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from jitdelegate.tflite.write import ModelBuilder

ANCHORS, COORDINATES = 2, 4


@dataclass(frozen=True)
class Features:
    """A square image of the network: tensor, height and width, channels."""

    tensor: int
    size: int
    channels: int

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return 1, self.size, self.size, self.channels


def detector(size: int = 16) -> bytes:
    """f32[1,size,size,3] to boxes_raw f32[1,n,4] and scores f32[1,n,1]."""
    return _Detector().build(size)


class _Detector:
    def __init__(self) -> None:
        self._random = np.random.default_rng(3)
        self._model = ModelBuilder()

    def build(self, size: int) -> bytes:
        model = self._model
        image = Features(model.input((1, size, size, 3), name="image"), size, 3)
        fine = self._convolution(image, 20, kernel=3, stride=2)
        coarse = self._residual(self._convolution(fine, 28, kernel=3, stride=2))
        joined = self._join(fine, self._resize(coarse, fine.size))
        boxes = [self._head(features, COORDINATES) for features in (joined, coarse)]
        scores = [self._head(features, 1) for features in (joined, coarse)]
        model.output(self._concatenation(boxes, "boxes_raw"))
        raw = self._concatenation(scores, "scores_raw")
        model.output(model.op("LOGISTIC", [raw], (1, self._count(scores), 1), name="scores"))
        return model.finish()

    def _convolution(
        self, data: Features, channels: int, kernel: int = 1, stride: int = 1, activation: str = "RELU"
    ) -> Features:
        scale = np.sqrt(2 / (data.channels * kernel * kernel))
        weights = scale * self._random.standard_normal((channels, kernel, kernel, data.channels))
        bias = self._random.uniform(0, 0.2, channels)
        operands = [data.tensor, *(self._model.constant(array.astype(np.float32)) for array in (weights, bias))]
        options = {"padding": "SAME", "stride_w": stride, "stride_h": stride, "fused_activation_function": activation}
        made = Features(-1, data.size // stride, channels)
        return Features(self._model.op("CONV_2D", operands, made.shape, options=options), made.size, channels)

    def _residual(self, data: Features) -> Features:
        bypassed = self._convolution(data, data.channels)
        return Features(self._model.op("ADD", [data.tensor, bypassed.tensor], data.shape), data.size, data.channels)

    def _resize(self, data: Features, size: int) -> Features:
        operands = [data.tensor, self._model.constant(np.array([size, size], np.int32))]
        made = Features(-1, size, data.channels)
        options = {"half_pixel_centers": True}
        return Features(self._model.op("RESIZE_BILINEAR", operands, made.shape, options=options), size, data.channels)

    def _join(self, left: Features, right: Features) -> Features:
        made = Features(-1, left.size, left.channels + right.channels)
        operands = [left.tensor, right.tensor]
        tensor = self._model.op("CONCATENATION", operands, made.shape, options={"axis": 3})
        return Features(tensor, made.size, made.channels)

    def _head(self, data: Features, values: int) -> tuple[int, int, int]:
        """(tensor f32[1, anchors, values], anchors, values)"""
        raw = self._convolution(data, ANCHORS * values, kernel=3, activation="NONE")
        count = raw.size * raw.size * ANCHORS
        options = {"new_shape": [1, count, values]}
        return self._model.op("RESHAPE", [raw.tensor], (1, count, values), options=options), count, values

    def _concatenation(self, parts: list[tuple[int, int, int]], name: str) -> int:
        shape = (1, self._count(parts), parts[0][2])
        return self._model.op("CONCATENATION", [part[0] for part in parts], shape, options={"axis": 1}, name=name)

    def _count(self, parts: list[tuple[int, int, int]]) -> int:
        return sum(count for _, count, _ in parts)
