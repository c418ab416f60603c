"""mobilenet_v1(): an example network with real layers and random weights, so that newcomers need no model."""

from __future__ import annotations

import numpy as np

from jitdelegate.tflite.write import ModelBuilder

# (stride of the depthwise convolution, channels after the pointwise one)
BLOCKS = (
    (1, 64), (2, 128), (1, 128), (2, 256), (1, 256), (2, 512),
    (1, 512), (1, 512), (1, 512), (1, 512), (1, 512), (2, 1024), (1, 1024),
)  # fmt: skip
CLASSES = 1001


def mobilenet_v1(size: int = 224, width: float = 1.0, seed: int = 0) -> bytes:
    """A .tflite file with the layers of MobileNet v1.

    Args:
        size: height and width of the image, a multiple of 32.
        width: factor on the number of channels.
        seed: of the weights; equal arguments give equal bytes.
    Returns:
        a model from f32[1,size,size,3] to f32[1,1001], the probabilities of meaningless classes; the input may be
        resized to any number of images.
    """
    return _Network(np.random.default_rng(seed), width).build(size)


class _Network:
    def __init__(self, random: np.random.Generator, width: float) -> None:
        self._random = random
        self._width = width
        self._model = ModelBuilder()
        self._size = 0

    def build(self, size: int) -> bytes:
        model, self._size = self._model, size
        value, channels = model.input((1, size, size, 3), name="image"), 3
        value = self._convolution(value, channels, self._channels(32), kernel=3, stride=2)
        channels = self._channels(32)
        for stride, wide in BLOCKS:
            value = self._depthwise(value, channels, stride)
            value = self._convolution(value, channels, self._channels(wide), kernel=1, stride=1)
            channels = self._channels(wide)
        value = self._classify(value, channels)
        model.output(model.op("SOFTMAX", [value], (1, CLASSES), options={"beta": 1.0}, name="probabilities"))
        return model.finish()

    def _channels(self, wide: int) -> int:
        return max(8, int(wide * self._width))

    def _weights(self, shape: tuple[int, ...], inputs: int) -> int:
        """Weights that keep the size of values from layer to layer."""
        values = self._random.standard_normal(shape, np.float32) * np.float32(np.sqrt(2.0 / inputs))
        return self._model.constant(values)

    def _bias(self, channels: int) -> int:
        return self._model.constant(self._random.uniform(0.0, 0.2, channels).astype(np.float32))

    def _convolution(self, value: int, channels: int, wide: int, kernel: int, stride: int) -> int:
        self._size //= stride
        weights = self._weights((wide, kernel, kernel, channels), kernel * kernel * channels)
        options = {
            "padding": "SAME",
            "stride_w": stride,
            "stride_h": stride,
            "fused_activation_function": "RELU6",
        }
        shape = (1, self._size, self._size, wide)
        return self._model.op("CONV_2D", [value, weights, self._bias(wide)], shape, options=options)

    def _depthwise(self, value: int, channels: int, stride: int) -> int:
        self._size //= stride
        weights = self._weights((1, 3, 3, channels), 9)
        options = {
            "padding": "SAME",
            "stride_w": stride,
            "stride_h": stride,
            "depth_multiplier": 1,
            "fused_activation_function": "RELU6",
        }
        shape = (1, self._size, self._size, channels)
        return self._model.op("DEPTHWISE_CONV_2D", [value, weights, self._bias(channels)], shape, options=options)

    def _classify(self, value: int, channels: int) -> int:
        """Average over the image, then one score per class."""
        model, size = self._model, self._size
        options = {
            "padding": "VALID",
            "stride_w": size,
            "stride_h": size,
            "filter_width": size,
            "filter_height": size,
        }
        pooled = model.op("AVERAGE_POOL_2D", [value], (1, 1, 1, channels), options=options)
        weights = self._weights((CLASSES, 1, 1, channels), channels)
        scores = model.op(
            "CONV_2D",
            [pooled, weights, self._bias(CLASSES)],
            (1, 1, 1, CLASSES),
            options={"padding": "SAME", "stride_w": 1, "stride_h": 1},
        )
        new_shape = model.constant(np.array([-1, CLASSES], np.int32))
        return model.op("RESHAPE", [scores, new_shape], (1, CLASSES), options={"new_shape": (-1, CLASSES)})
