"""Language models with key and value caches as inputs and outputs, in the two ways that people export them."""

from __future__ import annotations

import sys
import types
from typing import Any

Signatures = dict[str, tuple[Any, dict[str, Any]]]
"""By key: a module in evaluation mode, and its inputs by name."""

CACHE_LENGTH = 1280


def smollm_135m() -> Signatures:
    """SmolLM-135M as litert-torch writes it: DYNAMIC_UPDATE_SLICE, an odml composite for attention."""
    _lend_schema_of_tensorflow()
    import torch
    from litert_torch.generative.examples.smollm import smollm
    from litert_torch.generative.layers.kv_cache import KVCache
    from litert_torch.generative.utilities.converter import ExportableModule
    from litert_torch.generative.utilities.export_config import ExportConfig

    config = smollm.get_model_config()
    model = smollm.SmolLM(config, mask_cache_size=CACHE_LENGTH)
    for weights in model.parameters():
        if weights.dim() > 1:
            torch.nn.init.normal_(weights, std=0.03)
    export = ExportConfig()
    module = ExportableModule(model, export_config=export)

    def inputs(count: int) -> dict[str, Any]:
        caches = KVCache.from_model_config(CACHE_LENGTH, config, kv_layout=export.kvcache_layout)
        tokens = torch.zeros((1, count), dtype=torch.int)
        return {"tokens": tokens, "input_pos": torch.arange(count, dtype=torch.int), "kv_cache": caches}

    return {
        "prefill_64": (module, inputs(64)),
        "prefill_256": (module, inputs(256)),
        "decode": (module, inputs(1)),
    }


def llama_static_cache() -> Signatures:
    """A Llama of 110 million weights with Hugging Face's StaticCache, whose index_copy_ becomes STABLEHLO_SCATTER."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, StaticCache

    sizes = {"hidden_size": 768, "intermediate_size": 2048, "num_hidden_layers": 12, "vocab_size": 32000}
    heads, groups, width = 12, 4, 64
    config = LlamaConfig(
        **sizes,
        num_attention_heads=heads,
        num_key_value_heads=groups,
        max_position_embeddings=CACHE_LENGTH,
        attn_implementation="eager",
    )

    class Step(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = LlamaForCausalLM(config)

        def forward(self, tokens: Any, input_pos: Any, **caches: Any) -> dict[str, Any]:
            cache = StaticCache(config=config, max_cache_len=CACHE_LENGTH)
            for index, layer in enumerate(cache.layers):
                layer.keys, layer.values = caches[f"kv_cache_k_{index}"], caches[f"kv_cache_v_{index}"]
                layer.dtype, layer.device = layer.keys.dtype, layer.keys.device
                layer.cumulative_length = input_pos[0].to(torch.int64)
                layer.is_initialized = True
            logits = self.model(input_ids=tokens, position_ids=input_pos[None], past_key_values=cache).logits
            updated: dict[str, Any] = {"logits": logits[:, -1:]}
            for index, layer in enumerate(cache.layers):
                updated |= {f"kv_cache_k_{index}": layer.keys, f"kv_cache_v_{index}": layer.values}
            return updated

    def inputs(count: int) -> dict[str, Any]:
        shape = (1, groups, CACHE_LENGTH, width)
        names = [f"kv_cache_{kind}_{index}" for index in range(config.num_hidden_layers) for kind in "kv"]
        tokens = torch.zeros((1, count), dtype=torch.int)
        positions = torch.arange(count, dtype=torch.int)
        return {"tokens": tokens, "input_pos": positions} | {name: torch.zeros(shape) for name in names}

    module = Step()
    return {"prefill_64": (module, inputs(64)), "decode": (module, inputs(1))}


def _lend_schema_of_tensorflow() -> None:
    """litert-torch takes TFLite's schema from TensorFlow, and nothing else; LiteRT has the same module."""
    from ai_edge_litert import schema_py_generated

    for name in ("tensorflow", "tensorflow.lite", "tensorflow.lite.python"):
        sys.modules.setdefault(name, types.ModuleType(name))
    sys.modules["tensorflow.lite.python"].schema_py_generated = schema_py_generated  # type: ignore[attr-defined]
