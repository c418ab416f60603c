"""The networks: modules of PyTorch in evaluation mode, and inputs of theirs. Images are NCHW, as PyTorch has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scripts.convert_networks.decoders import Signatures, llama_static_cache, smollm_135m

Network = tuple[Any, tuple[Any, ...]]
"""A module in evaluation mode, and example inputs."""


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


def _transformer(model: str, config: str, inputs: Callable[[], Any], **settings: Any) -> Callable[[], Network]:
    """The first output of a network of transformers, which takes one tensor."""

    def make() -> Network:
        import transformers

        made = getattr(transformers, config)(attn_implementation="eager", **settings)
        return _first(getattr(transformers, model)(made)), (inputs(),)

    return make


def _tokens(count: int, vocabulary: int) -> Callable[[], Any]:
    def draw() -> Any:
        import torch

        return torch.randint(0, vocabulary, (1, count))

    return draw


def _numbers(*shape: int) -> Callable[[], Any]:
    def draw() -> Any:
        import torch

        return torch.randn(*shape)

    return draw


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
            outputs = []
            for step in range(steps):
                gates = self.cell(torch.cat([values[step : step + 1], hidden], dim=1))
                i, j, f, o = gates.chunk(4, dim=1)
                state = state * (f + 1).sigmoid() + i.sigmoid() * j.tanh()
                hidden = state.tanh() * o.sigmoid()
                outputs.append(hidden)
            values = self.after[0](torch.cat(outputs)).relu().clamp(max=20)
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


NETWORKS: dict[str, Callable[[], Network | Signatures]] = {
    "pvt_v2_b1": _timm("pvt_v2_b1"),
    "efficientformer_l1": _timm("efficientformer_l1"),
    "efficientformerv2_s0": _timm("efficientformerv2_s0"),
    "resnest14d": _timm("resnest14d"),
    "wav2vec2_base": _transformer("Wav2Vec2Model", "Wav2Vec2Config", _numbers(1, 16000), apply_spec_augment=False),
    "distilbert": _transformer("DistilBertModel", "DistilBertConfig", _tokens(128, 30522)),
    "shufflenet_v2": _shufflenet,
    "deepspeech": _deepspeech,
    "whisper_encoder": _whisper_encoder,
    "swin_tiny": _timm("swin_tiny_patch4_window7_224"),
    "whisper_decoder": _whisper_decoder,
    "vit_tiny": _timm("vit_tiny_patch16_224"),
    "beit_base": _timm("beit_base_patch16_224"),
    "mobilevit_xs": _timm("mobilevit_xs", 256),
    "convnextv2_atto": _timm("convnextv2_atto"),
    "levit_128": _timm("levit_128"),
    "efficientvit_b0": _timm("efficientvit_b0"),
    "minilm": _transformer(
        "BertModel",
        "BertConfig",
        _tokens(128, 30522),
        hidden_size=384,
        num_hidden_layers=6,
        num_attention_heads=12,
        intermediate_size=1536,
    ),
    "segformer_b0": _transformer("SegformerForSemanticSegmentation", "SegformerConfig", _numbers(1, 3, 512, 512)),
    "t5_encoder": _transformer(
        "T5EncoderModel", "T5Config", _tokens(128, 32128), d_model=512, d_ff=1024, num_layers=8, num_heads=6
    ),
    "clip_text": _transformer("CLIPTextModel", "CLIPTextConfig", _tokens(77, 49408)),
    "patchtst": _transformer(
        "PatchTSTForPrediction", "PatchTSTConfig", _numbers(1, 512, 7), num_input_channels=7, context_length=512
    ),
    "smollm_135m": smollm_135m,
    "llama_static_cache": llama_static_cache,
}
