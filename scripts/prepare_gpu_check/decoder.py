"""A small decoder that reads one token after another; its cache is an output that becomes an input again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jitdelegate.commands.guide_models import VOCABULARY
from jitdelegate.commands.guide_models import decoder as guide_decoder
from jitdelegate.tflite.read import read as read_model
from scripts.gpu_check.bundle import MODEL
from scripts.prepare_gpu_check.source import LITERT, Feed, Source
from scripts.quantized_models import written
from scripts.quantized_runs import run_litert

NAME = "small decoder"
STEPS = 12
CARRIED = ((2, 0), (3, 1))
"""Input and output of the keys and of the values in its cache."""


def decoder(precisions: Sequence[str], steps: int = STEPS) -> Source:
    """So many tokens at the positions from 0 on, and the cache and the logits after the last one."""
    graph = read_model(guide_decoder()).graphs[1]
    content, cache = written(graph), [np.zeros(graph.tensors[index].shape, np.float32) for index in graph.inputs[2:]]
    tokens = np.random.default_rng(0).integers(VOCABULARY, size=(steps, 1, 1), dtype=np.int32)
    positions = np.arange(steps, dtype=np.int32).reshape(steps, 1)

    def expected() -> list[Feed]:
        outputs: Sequence[np.ndarray] = cache
        for token, position in zip(tokens, positions, strict=True):
            (outputs,) = run_litert(content, [[token, position, *outputs[:2]]])
        return list(map(Feed, outputs))

    feeds = [Feed(values) for values in (tokens, positions, *cache)]
    return Source(NAME, MODEL, content, feeds, expected, LITERT, precisions, NAME, steps=steps, carried=CARRIED)
