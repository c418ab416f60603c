"""Converts one network, in the process and the environment that have PyTorch.

Weights are those of the networks' own initialization. Batch normalizations get the statistics of a random batch, so
that no layer's values grow or vanish with depth: a network whose weighted layers give NaN, infinities or denormal
numbers, which slow CPUs down, is refused. Images are NHWC in the file.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from scripts.convert_networks.networks import NETWORKS

SMALLEST_NORMAL = 2.0**-126


def convert(name: str, folder: Path) -> None:
    """Writes NETWORK.tflite, whole or not at all."""
    _declare_torchvision_operators()
    import litert_torch
    import torch

    torch.manual_seed(0)
    network = NETWORKS[name]()
    if isinstance(network, dict):
        converter = litert_torch.Converter()
        for key, (module, named_inputs) in network.items():
            converter.add_signature(key, module.eval(), sample_kwargs=named_inputs)
        converted = converter.convert()
    else:
        converted = litert_torch.convert(*_with_one_signature(*network))
    temporary = folder / f".{name}.{os.getpid()}"
    converted.export(str(temporary))
    temporary.rename(folder / f"{name}.tflite")


def _with_one_signature(module: Any, inputs: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """The network whose values were checked, and its inputs: images are NHWC."""
    import litert_torch

    module.eval()
    _settle_normalizations(module, inputs)
    _check_values(module, inputs)
    if inputs[0].dim() == 4:
        module = litert_torch.to_channel_last_io(module, args=[0])
        inputs = (inputs[0].permute(0, 2, 3, 1).contiguous(), *inputs[1:])
    return module, inputs


def _declare_torchvision_operators() -> None:
    """timm imports torchvision's Python code, which needs the names of these operators. Its native library declares
    them where it was built for this torch; where it cannot be loaded, nothing here needs more than the names."""
    import torch

    try:
        import torchvision  # noqa: F401
    except (ImportError, RuntimeError):
        library = torch.library.Library("torchvision", "FRAGMENT")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        KEPT.append(library)


KEPT: list[object] = []
"""Operators are declared as long as their library object lives."""


def _settle_normalizations(module: Any, inputs: tuple[Any, ...]) -> None:
    """Batch normalizations with random scales and offsets, and the statistics of one random batch."""
    import torch

    layers = [layer for layer in module.modules() if isinstance(layer, torch.nn.modules.batchnorm._BatchNorm)]
    for layer in layers:
        torch.nn.init.uniform_(layer.weight, 0.5, 1.5)
        torch.nn.init.normal_(layer.bias, std=0.1)
        layer.momentum = 1.0
        layer.train()
    if layers:
        with torch.no_grad():
            module(*(torch.randn(4, *value.shape[1:]) for value in inputs))
    module.eval()


def _check_values(module: Any, inputs: tuple[Any, ...]) -> None:
    """
    Raises:
        ValueError: a layer gives numbers that are not finite, or denormal ones.
    """
    import torch

    def check(layer: Any, _: Any, output: Any) -> None:
        for values in output if isinstance(output, tuple) else (output,):
            if not isinstance(values, torch.Tensor) or not values.is_floating_point():
                continue
            if not values.isfinite().all():
                raise ValueError(f"{type(layer).__name__} gives numbers that are not finite")
            if ((values != 0) & (values.abs() < SMALLEST_NORMAL)).any():
                raise ValueError(f"{type(layer).__name__} gives denormal numbers")

    checked = [layer for layer in module.modules() if [*layer.parameters(recurse=False)]]  # masked scores are denormal
    hooks = [layer.register_forward_hook(check) for layer in checked]
    with torch.no_grad():
        module(*inputs)
    for hook in hooks:
        hook.remove()
