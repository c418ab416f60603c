"""Converts well-known PyTorch networks to float32 .tflite files, with seeded random weights: nothing is downloaded.

    python scripts/convert_networks.py [NETWORK ...] --into FOLDER [--environment FOLDER]

The converter needs packages that the project does not need (REQUIREMENTS). They live in a virtual environment of their
own, which is made in `--environment` where there is none; `--index-url` and `--find-links` go to pip. Each network is
converted in a process of its own; whisper_decoder needs some 12 GB of memory. Existing files are kept. Images are NHWC.

Weights are those of the networks' own initialization. Batch normalizations get the statistics of a random batch, so
that no layer's values grow or vanish with depth: a network whose weighted layers give NaN, infinities or denormal
numbers, which slow CPUs down, is refused.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

REQUIREMENTS = ("torch==2.13.0", "litert-torch==0.10.0", "timm==1.0.31", "transformers==5.23.0")
SMALLEST_NORMAL = 2.0**-126

Network = tuple[Any, tuple[Any, ...]]
"""A module in evaluation mode, and example inputs."""


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 all converted, 1 a conversion failed, 2 wrong arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", nargs="*", help=f"default: all of {', '.join(NETWORKS)}")
    parser.add_argument("--into", type=Path, required=True, help="folder for NETWORK.tflite")
    parser.add_argument("--environment", type=Path, default=Path.home() / ".cache" / "jitdelegate-convert")
    parser.add_argument("--index-url", help="of pip")
    parser.add_argument("--find-links", help="of pip")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    unknown = sorted(set(arguments.network) - set(NETWORKS))
    if unknown:
        parser.error(f"unknown networks {', '.join(unknown)}; known are {', '.join(NETWORKS)}")
    if arguments.child:
        convert(arguments.network[0], arguments.into)
        return 0
    arguments.into.mkdir(parents=True, exist_ok=True)
    python = environment(arguments)
    failed = [name for name in arguments.network or NETWORKS if not _in_child(python, name, arguments.into)]
    return 1 if failed else 0


def environment(arguments: argparse.Namespace) -> Path:
    """The interpreter of the virtual environment, which is made and filled where it lacks the packages."""
    python: Path = arguments.environment / "bin" / "python"
    if not python.exists():
        venv.create(arguments.environment, with_pip=True)
    sources = [
        f"--{name}={value}"
        for name, value in (("index-url", arguments.index_url), ("find-links", arguments.find_links))
        if value
    ]
    subprocess.run([python, "-m", "pip", "install", "--quiet", *sources, *REQUIREMENTS], check=True)
    return python


def _in_child(python: Path, name: str, folder: Path) -> bool:
    """Whether the network is there, or could be converted."""
    target = folder / f"{name}.tflite"
    if not target.exists():
        command = [python, __file__, name, "--into", folder, "--child"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            print(f"{name}: failed\n{done.stderr[-4000:]}", flush=True)
            return False
    print(f"{name}: {target.stat().st_size} bytes", flush=True)
    return True


def convert(name: str, folder: Path) -> None:
    """Writes NETWORK.tflite, whole or not at all."""
    _declare_torchvision_operators()
    import litert_torch
    import torch

    torch.manual_seed(0)
    module, inputs = NETWORKS[name]()
    module.eval()
    _settle_normalizations(module, inputs)
    _check_values(module, inputs)
    if inputs[0].dim() == 4:
        module = litert_torch.to_channel_last_io(module, args=[0])
        inputs = (inputs[0].permute(0, 2, 3, 1).contiguous(), *inputs[1:])
    temporary = folder / f".{name}.{os.getpid()}"
    litert_torch.convert(module, inputs).export(str(temporary))
    temporary.rename(folder / f"{name}.tflite")


def _declare_torchvision_operators() -> None:
    """torchvision's native library needs the torch that it was built with, and does without: timm imports torchvision's
    Python code, which needs only the names of these operators."""
    import torch

    torchvision = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        torchvision.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    KEPT.append(torchvision)


KEPT: list[object] = []
"""Operators are declared as long as their library object lives."""


def _settle_normalizations(module: Any, inputs: tuple[Any, ...]) -> None:
    """Batch normalizations with random scales and offsets, and the statistics of one random batch."""
    import torch

    found = [layer for layer in module.modules() if isinstance(layer, torch.nn.modules.batchnorm._BatchNorm)]
    for layer in found:
        torch.nn.init.uniform_(layer.weight, 0.5, 1.5)
        torch.nn.init.normal_(layer.bias, std=0.1)
        layer.momentum = 1.0
        layer.train()
    if found:
        with torch.no_grad():
            module(*(torch.randn(4, *each.shape[1:]) for each in inputs))
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


def _timm(name: str, size: int = 224) -> Callable[[], Network]:
    """A network of timm for images of `size` by `size` pixels."""

    def make() -> Network:
        import timm
        import torch

        return timm.create_model(name, pretrained=False), (torch.randn(1, 3, size, size),)

    return make


def _shufflenet() -> Network:
    import torch
    import torchvision

    return torchvision.models.shufflenet_v2_x1_0(weights=None), (torch.randn(1, 3, 224, 224),)


def _wav2vec2() -> Network:
    """One second of sound at 16 kHz."""
    import torch
    from transformers import Wav2Vec2Config, Wav2Vec2Model

    config = Wav2Vec2Config(attn_implementation="eager", apply_spec_augment=False)
    return _first(Wav2Vec2Model(config)), (torch.randn(1, 16000),)


def _distilbert() -> Network:
    """128 tokens."""
    import torch
    from transformers import DistilBertConfig, DistilBertModel

    config = DistilBertConfig(attn_implementation="eager")
    return _first(DistilBertModel(config)), (torch.randint(0, config.vocab_size, (1, 128)),)


def _whisper_config() -> Any:
    """The size "small"."""
    from transformers import WhisperConfig

    layers = {"encoder_layers": 12, "decoder_layers": 12, "encoder_ffn_dim": 3072, "decoder_ffn_dim": 3072}
    heads = {"encoder_attention_heads": 12, "decoder_attention_heads": 12}
    return WhisperConfig(d_model=768, **layers, **heads, use_cache=False, attn_implementation="eager")


def _whisper_encoder() -> Network:
    """80 mel bands of 30 seconds of sound."""
    import torch
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    return _first(WhisperEncoder(_whisper_config())), (torch.randn(1, 80, 3000),)


def _whisper_decoder() -> Network:
    """16 tokens beside what the encoder found; the table of tokens is the last layer's matrix as well."""
    import torch
    from transformers.models.whisper.modeling_whisper import WhisperDecoder

    config = _whisper_config()

    class Decoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.decoder = WhisperDecoder(config)

        def forward(self, tokens: Any, encoded: Any) -> Any:
            states = self.decoder(input_ids=tokens, encoder_hidden_states=encoded, use_cache=False)[0]
            return torch.nn.functional.linear(states, self.decoder.embed_tokens.weight)

    return Decoder(), (torch.randint(0, config.vocab_size, (1, 16)), torch.randn(1, 1500, config.d_model))


def _deepspeech() -> Network:
    """16 steps of DeepSpeech 0.9: windows of 19 frames of 26 features, dense layers, an unrolled LSTM, letters."""
    import torch
    from torch import nn

    steps, frames, features, width, letters = 16, 19, 26, 2048, 29

    class DeepSpeech(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            sizes = [(frames * features, width), (width, width), (width, width)]
            self.before = nn.ModuleList(nn.Linear(*each) for each in sizes)
            self.cell = nn.Linear(2 * width, 4 * width)
            self.after = nn.ModuleList([nn.Linear(width, width), nn.Linear(width, letters)])

        def forward(self, sound: Any, state: Any, hidden: Any) -> Any:
            values = sound.reshape(steps, frames * features)
            for layer in self.before:
                values = layer(values).relu().clamp(max=20)
            found = []
            for step in range(steps):
                gates = self.cell(torch.cat([values[step : step + 1], hidden], dim=1))
                i, j, f, o = gates.chunk(4, dim=1)
                state = state * (f + 1).sigmoid() + i.sigmoid() * j.tanh()
                hidden = state.tanh() * o.sigmoid()
                found.append(hidden)
            values = self.after[0](torch.cat(found)).relu().clamp(max=20)
            return self.after[1](values).softmax(dim=1), state, hidden

    return DeepSpeech(), (torch.randn(1, steps, frames * features), torch.zeros(1, width), torch.zeros(1, width))


def _first(module: Any) -> Any:
    """The module that gives the first output only."""
    import torch

    class First(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, *inputs: Any) -> Any:
            return self.module(*inputs, return_dict=True)[0]

    return First()


NETWORKS: dict[str, Callable[[], Network]] = {
    "pvt_v2_b1": _timm("pvt_v2_b1"),
    "efficientformer_l1": _timm("efficientformer_l1"),
    "efficientformerv2_s0": _timm("efficientformerv2_s0"),
    "resnest14d": _timm("resnest14d"),
    "wav2vec2_base": _wav2vec2,
    "distilbert": _distilbert,
    "shufflenet_v2": _shufflenet,
    "deepspeech": _deepspeech,
    "whisper_encoder": _whisper_encoder,
    "swin_tiny": _timm("swin_tiny_patch4_window7_224"),
    "whisper_decoder": _whisper_decoder,
}


if __name__ == "__main__":
    sys.exit(main())
