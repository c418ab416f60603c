"""MobileNet v1 1.0 224 in JAX, compiled by XLA."""

from __future__ import annotations

import os
from typing import Any

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # JAX would take most of the memory that all share

import jax
import jax.numpy as jnp
import numpy as np

from jitdelegate.commands.demo_model import BLOCKS, CLASSES
from scripts.gpu_check.sides import RUNS, timed

SIZE = 224
PRODUCTS = {"float32": "float32", "tf32": "tensorfloat32", "float16": "float32"}
"""How JAX may multiply float32; it multiplies float16 as it is."""
LAYOUT = ("NHWC", "HWIO", "NHWC")
Layer = tuple[Any, Any]


class JaxSide:
    """The network compiled ahead of time. JAX gives no events, so that only the host's clock is asked."""

    has_events = False

    def __init__(self, precision: str, batch: int) -> None:
        """
        Raises:
            RuntimeError: JAX sees no GPU.
        """
        if jax.default_backend() != "gpu":
            raise RuntimeError(f"JAX runs on {jax.default_backend()!r}, expected 'gpu'")
        dtype = "float32" if precision == "tf32" else precision
        self._source = np.random.default_rng(0).random((batch, SIZE, SIZE, 3), np.float32).astype(dtype)
        self._layers = _layers(jnp.dtype(dtype))
        self._image = jax.device_put(self._source)
        with jax.default_matmul_precision(PRODUCTS[precision]):
            self._run = jax.jit(forward).lower(self._layers, self._image).compile()

    def device_seconds(self) -> float:
        raise NotImplementedError("JAX gives no events")

    def queued_seconds(self) -> float:
        return timed(self._queue) / RUNS

    def call_seconds(self) -> float:
        return timed(lambda: np.asarray(self._run(self._layers, jax.device_put(self._source))))

    def _queue(self) -> None:
        for _ in range(RUNS):
            output = self._run(self._layers, self._image)
        output.block_until_ready()


def forward(layers: list[Layer], image: Any) -> Any:
    """From f[N,224,224,3] to the probabilities f[N,1001]."""
    first, *middle, last = layers
    value = _convolve(image, first, stride=2)
    for (stride, _), depthwise, pointwise in zip(BLOCKS, middle[::2], middle[1::2], strict=True):
        value = _convolve(value, depthwise, stride, groups=value.shape[3])
        value = _convolve(value, pointwise)
    pooled = value.mean((1, 2))
    return jax.nn.softmax(pooled @ last[0] + last[1])


def _convolve(value: Any, layer: Layer, stride: int = 1, groups: int = 1) -> Any:
    weights, bias = layer
    strides = (stride, stride)
    product = jax.lax.conv_general_dilated(
        value, weights, strides, "SAME", dimension_numbers=LAYOUT, feature_group_count=groups
    )
    return jnp.clip(product + bias, 0, 6)


def _layers(dtype: Any) -> list[Layer]:
    """Random weights: the first convolution, depthwise and pointwise in turn, and the classifier."""
    shapes: list[tuple[int, ...]] = [(3, 3, 3, 32)]
    channels = 32
    for _, wide in BLOCKS:
        shapes += [(3, 3, 1, channels), (1, 1, channels, wide)]
        channels = wide
    keys = jax.random.split(jax.random.key(0), len(shapes) + 1)
    shapes.append((channels, CLASSES))
    return [_layer(key, shape, dtype) for key, shape in zip(keys, shapes, strict=True)]


def _layer(key: Any, shape: tuple[int, ...], dtype: Any) -> Layer:
    scale = (2 / np.prod(shape[:-1])) ** 0.5
    return (jax.random.normal(key, shape) * scale).astype(dtype), jnp.zeros(shape[-1], dtype)
