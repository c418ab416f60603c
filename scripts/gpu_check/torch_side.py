"""MobileNet v1 1.0 224 compiled by torch, and as one CUDA graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from jitdelegate.commands.demo_model import BLOCKS, CLASSES
from scripts.gpu_check.sides import RUNS, timed

SIZE = 224
WARM_UP = 3


class TorchSide:
    """A network that reads and writes memory on the GPU, which stays in place."""

    def __init__(self, run: Callable[[], Any], image: Any) -> None:
        """
        Args:
            run: one inference on `image`; answers the output.
        """
        self._run = run
        self._image = image
        self._source = torch.rand(image.shape).to(image.dtype, memory_format=torch.channels_last).pin_memory()
        self._target = torch.empty(run().shape, dtype=image.dtype, pin_memory=True)

    def device_seconds(self) -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        self._queue()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / 1e3 / RUNS

    def _queue(self) -> None:
        with torch.no_grad():
            for _ in range(RUNS):
                self._run()

    def call_seconds(self) -> float:
        with torch.no_grad():
            return timed(self._call)

    def _call(self) -> None:
        self._image.copy_(self._source, non_blocking=True)
        self._target.copy_(self._run(), non_blocking=True)
        torch.cuda.synchronize()


def network() -> Any:
    """The layers, batch normalisation folded away, in channels_last."""
    layers, channels = [*_convolution(3, 32, kernel=3, stride=2)], 32
    for stride, wide in BLOCKS:
        layers += _convolution(channels, channels, kernel=3, stride=stride, groups=channels)
        layers += _convolution(channels, wide, kernel=1)
        channels = wide
    layers += [nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, CLASSES, 1), nn.Flatten(), nn.Softmax(1)]
    return nn.Sequential(*layers).eval().to(memory_format=torch.channels_last)


def _convolution(channels: int, wide: int, kernel: int, stride: int = 1, groups: int = 1) -> list[Any]:
    return [
        nn.Conv2d(channels, wide, kernel, stride, padding=kernel // 2, groups=groups),
        nn.ReLU6(inplace=True),
    ]


def _on_gpu(precision: str, batch: int) -> tuple[Any, Any]:
    """The network and its images. float32 means float32: no shorter products, as on our side; tf32 allows them."""
    shorter = precision == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = shorter
    torch.backends.cudnn.benchmark = True
    torch.manual_seed(0)
    dtype = torch.float32 if shorter else getattr(torch, precision)
    image = torch.rand(batch, 3, SIZE, SIZE).to("cuda", dtype, memory_format=torch.channels_last)
    return network().to("cuda", dtype), image


def _compiled(model: Any, image: Any, mode: str) -> TorchSide:
    """torch.compile in a mode that uses CUDA graphs, called as users call it."""
    torch.compiler.reset()
    fast = torch.compile(model, mode=mode, dynamic=False)
    for _ in range(WARM_UP):
        fast(image)
    return TorchSide(lambda: fast(image), image)


def _compiled_graph(model: Any, image: Any) -> TorchSide:
    """The same kernels captured by hand: without what torch does on the host around them."""
    fast = torch.compile(model, mode="max-autotune-no-cudagraphs", dynamic=False)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_UP):
            fast(image)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = fast(image)

    def run() -> Any:
        graph.replay()
        return output

    return TorchSide(run, image)


def torch_side(kind: str, precision: str, batch: int) -> TorchSide:
    """The network on the GPU.

    Args:
        kind: a mode of torch.compile, or "graph" for what max-autotune makes, as one graph.
    """
    with torch.no_grad():
        model, image = _on_gpu(precision, batch)
        return _compiled_graph(model, image) if kind == "graph" else _compiled(model, image, kind)
