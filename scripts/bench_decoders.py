"""Decoders with key and value caches: jitdelegate against LiteRT's CompiledModel.

    python -m scripts.bench_decoders MODEL [MODEL ...] [--threads 1 2] [--tokens 64] [--rounds 9] [--json]

A decoder has signatures with token numbers, their positions and cache tensors as inputs, and the caches as outputs of
the same names; one signature takes one token and gives logits too, as litert-torch converts generative models. Both
sides read the same seeded prompt by the longest prefill signature, then generate tokens greedily. LiteRT gets the same
buffer as input and output of a cache.

- start, first token: seconds of a fresh process from the model's path until it is ready to run, and until the first
  token is known; peak memory is that of the process. "cold" is with an empty cache of programs, which LiteRT lacks.
- prefill, decode: tokens a second, medians of rounds in which both sides take turns in one process. The speed is
  LiteRT's time over ours, round by round: above 1 we are faster.

Generated tokens have to be equal; the first difference is printed, and how far LiteRT's best two logits are apart.
Where data is quantized at run time, an element halfway between two bytes may become either, so that logits differ.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from jitdelegate.commands.measurement.memory import peak_bytes
from jitdelegate.commands.measurement.process import run_module
from jitdelegate.commands.measurement.timing import ratio, settle
from jitdelegate.commands.measurement.timing import seconds as seconds_of
from jitdelegate.errors import ModelError

PREFILLS = 8
"""Runs of the prefill signature in a round."""

Inputs = dict[str, Any]
Details = Mapping[str, tuple[tuple[int, ...], str]]
"""Tensors by name: shape, and numpy's name of the type."""


@dataclass(frozen=True)
class Step:
    """A signature that reads tokens.

    Attributes:
        count: tokens that it reads at once.
        tokens, positions, mask, logits: names of tensors; "" where there is none.
        caches: the tensors that are both inputs and outputs.
        mask_shape: f32[..., count, keys].
        numbers: of the logits.
    """

    key: str
    count: int
    tokens: str
    positions: str
    mask: str
    logits: str
    caches: Details
    mask_shape: tuple[int, ...]
    numbers: int

    @classmethod
    def of(cls, key: str, inputs: Details, outputs: Details) -> Step | None:
        """The signature `key`, or None if it is not of this kind."""
        caches = {name: found for name, found in inputs.items() if name in outputs}
        others = {name: found for name, found in inputs.items() if name not in caches}
        integers = {name: shape for name, (shape, dtype) in others.items() if dtype.startswith("int")}
        tokens = [name for name, shape in integers.items() if len(shape) == 2 and shape[0] == 1]
        masks = [name for name in others if name not in integers]
        logits = [name for name in outputs if name not in caches]
        if len(tokens) != 1 or not caches or len(masks) > 1 or len(logits) > 1:
            return None
        count = integers.pop(tokens[0])[1]
        if any(shape != (count,) for shape in integers.values()) or len(integers) > 1:
            return None
        mask, positions = "".join(masks), "".join(integers)
        shape = others[mask][0] if mask else ()
        numbers = sum(prod(outputs[name][0]) for name in logits)
        return cls(key, count, tokens[0], positions, mask, "".join(logits), caches, shape, numbers)

    def inputs(self, tokens: Sequence[int], first: int) -> Inputs:
        """The inputs beside the caches, for tokens at the positions from `first` on."""
        positions = np.arange(first, first + self.count, dtype=np.int32)
        result = {self.tokens: np.array([tokens], np.int32)}
        if self.positions:
            result[self.positions] = positions
        if self.mask:
            seen = np.arange(self.mask_shape[-1]) <= positions[:, None]
            mask = np.where(seen, 0, -np.inf).astype(np.float32)
            result[self.mask] = np.ascontiguousarray(np.broadcast_to(mask, self.mask_shape))
        return result


class Side(Protocol):
    """One of the two that are compared; caches start with zeros."""

    prefill: Step
    decode: Step

    def __init__(self, model: str, threads: int) -> None: ...

    def run(self, step: Step, inputs: Inputs) -> Any:
        """Runs a signature and updates the caches; returns the logits, if it has any."""

    def reset(self) -> None:
        """Fills the caches with zeros."""


def steps(signatures: Mapping[str, tuple[Details, Details]]) -> tuple[Step, Step]:
    """The longest prefill signature, and the one that decodes.

    Raises:
        ValueError: the model has none.
    """
    found = [Step.of(key, *each) for key, each in signatures.items()]
    steps = [step for step in found if step is not None]
    decode = [step for step in steps if step.count == 1 and step.logits]
    if not decode:
        raise ValueError("no signature takes one token with caches, and gives logits")
    prefill = max((step for step in steps if step.caches.keys() == decode[0].caches.keys()), key=lambda s: s.count)
    return prefill, decode[0]


class Ours:
    """jitdelegate; a session keeps the caches."""

    def __init__(self, model: str, threads: int) -> None:
        import jitdelegate

        self.model = jitdelegate.load(model, num_threads=threads, target="cpu")
        self.model.prepare()
        runners = self.model.signatures
        self.prefill, self.decode = steps({key: self._details(key) for key in runners})
        self.session = self.model.session(list(self.decode.caches))

    def _details(self, key: str) -> tuple[Details, Details]:
        signature = self.model._signature(key)
        program = self.model._specializations.subgraph(signature.graph).program
        sides = (program.inputs, signature.inputs), (program.outputs, signature.outputs)
        tables = [({port.index: (port.shape, port.dtype) for port in ports}, names) for ports, names in sides]
        inputs, outputs = ({name: table[index] for name, index in names} for table, names in tables)
        return inputs, outputs

    def run(self, step: Step, inputs: Inputs) -> Any:
        outputs = self.session.run(step.key, inputs)
        return np.asarray(outputs[step.logits]) if step.logits else None

    def reset(self) -> None:
        self.session.reset()


class LiteRT:
    """LiteRT's CompiledModel; the buffer of a cache is input and output."""

    def __init__(self, model: str, threads: int) -> None:
        from ai_edge_litert.compiled_model import CompiledModel
        from ai_edge_litert.hardware_accelerator import HardwareAccelerator
        from ai_edge_litert.options import CpuOptions, Options

        options = Options(hardware_accelerators=HardwareAccelerator.CPU, cpu_options=CpuOptions(num_threads=threads))
        self.model = CompiledModel.from_file(model, options=options)
        keys = list(self.model.get_signature_list())
        self.prefill, self.decode = steps({key: self._details(key) for key in keys})
        self.caches = {name: self._buffer(self.decode, name) for name in self.decode.caches}
        self.buffers = {step.key: self._buffers(step) for step in (self.prefill, self.decode)}
        self.reset()

    def _details(self, key: str) -> tuple[Details, Details]:
        found = self.model.get_input_tensor_details(key), self.model.get_output_tensor_details(key)
        inputs, outputs = ({name: (tuple(each["shape"]), each["dtype"]) for name, each in one.items()} for one in found)
        return inputs, outputs

    def _buffer(self, step: Step, name: str) -> Any:
        return self.model.create_input_buffer_by_name(step.key, name)

    def _buffers(self, step: Step) -> tuple[dict[str, Any], dict[str, Any]]:
        named = filter(None, (step.tokens, step.positions, step.mask))
        inputs = {name: self._buffer(step, name) for name in named}
        outputs = {step.logits: self.model.create_output_buffer_by_name(step.key, step.logits)} if step.logits else {}
        return self.caches | inputs, self.caches | outputs

    def run(self, step: Step, inputs: Inputs) -> Any:
        given, results = self.buffers[step.key]
        for name, value in inputs.items():
            given[name].write(value)
        self.model.run_by_name(step.key, given, results)
        return results[step.logits].read(step.numbers, np.float32) if step.logits else None

    def reset(self) -> None:
        for name, (shape, dtype) in self.decode.caches.items():
            self.caches[name].write(np.zeros(shape, dtype))


SIDES: dict[str, Callable[[str, int], Side]] = {"ours": Ours, "LiteRT": LiteRT}


def prompt(side: Side) -> list[int]:
    """Seeded tokens: those of one prefill, and the one that is decoded first."""
    vocabulary = side.decode.numbers
    return [int(token) for token in np.random.default_rng(0).integers(0, vocabulary, side.prefill.count + 1)]


def prefill(side: Side, tokens: Sequence[int]) -> None:
    """Reads the prompt but for its last token."""
    side.run(side.prefill, side.prefill.inputs(tokens[:-1], 0))


def generate(side: Side, tokens: Sequence[int], count: int) -> list[int]:
    """The tokens that follow the prompt's."""
    found: list[int] = []
    for position in range(len(tokens) - 1, len(tokens) - 1 + count):
        token = found[-1] if found else tokens[-1]
        found.append(int(np.argmax(side.run(side.decode, side.decode.inputs([token], position)))))
    return found


def margin(side: Side, tokens: Sequence[int], generated: Sequence[int]) -> float:
    """The distance between the best two logits of the token after `generated`, which follow the prompt."""
    prefill(side, tokens)
    given = [tokens[-1], *generated]
    for position, token in enumerate(given, len(tokens) - 1):
        logits = side.run(side.decode, side.decode.inputs([token], position))
    second, best = np.sort(logits, axis=None)[-2:]
    return float(best - second)


def measure_start(side: str, model: str, threads: int) -> dict[str, float]:
    """Seconds until the side is ready and until the first token, and the most memory of this process, in bytes."""
    start = time.perf_counter()
    opened = SIDES[side](model, threads)
    ready = time.perf_counter()
    tokens = prompt(opened)
    prefill(opened, tokens)
    generate(opened, tokens, 1)
    first = time.perf_counter()
    generate(opened, tokens, 8)
    return {"start": ready - start, "first_token": first - start, "memory": peak_bytes()}


def starts(model: str, threads: int, rounds: int) -> dict[str, dict[str, float]]:
    """Medians of `measure_start` in processes of their own, which take turns."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in ("ours, cold", "ours, warm", "LiteRT") if rounds}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as cache:
            for name in found:
                side = name.partition(",")[0]
                arguments = [model, "--child", side, "--threads", str(threads)]
                try:
                    figures, _ = run_module(name, "scripts.bench_decoders", arguments, {"XDG_CACHE_HOME": cache})
                except ModelError as error:
                    sys.exit(str(error))
                found[name].append(figures)
    return {name: _medians(each) for name, each in found.items()}


def _medians(rounds: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {key: statistics.median(each[key] for each in rounds) for key in rounds[0]}


def rates(model: str, threads: int, tokens: int, rounds: int) -> dict[str, Any]:
    """Tokens a second of both sides in prefill and decode, the speeds, and the first token that differs."""
    sides = {name: side(model, threads) for name, side in SIDES.items()}
    seconds: dict[str, dict[str, list[float]]] = {name: {"prefill": [], "decode": []} for name in sides}
    generated: dict[str, list[int]] = {}
    order, shuffled = random.Random(0), list(sides.items())
    for _ in range(rounds):
        order.shuffle(shuffled)
        for name, side in shuffled:
            text = prompt(side)
            count = min(tokens, _room(side))
            side.reset()
            settle(lambda side=side, text=text: prefill(side, text))
            seconds[name]["prefill"].append(
                statistics.median(seconds_of(lambda side=side, text=text: prefill(side, text)) for _ in range(PREFILLS))
                / side.prefill.count
            )
            settle(lambda side=side, text=text: generate(side, text, 1))
            start = time.perf_counter()
            generated[name] = generate(side, text, count)
            seconds[name]["decode"].append((time.perf_counter() - start) / count)
    result: dict[str, Any] = {}
    for phase in ("prefill", "decode"):
        ours, theirs = (seconds[name][phase] for name in SIDES)
        result[phase] = {name: 1 / statistics.median(seconds[name][phase]) for name in SIDES}
        result[phase]["speed"] = ratio(theirs, ours)
    ours_said, theirs_said = (generated[name] for name in SIDES)
    differences = [k for k, pair in enumerate(zip(ours_said, theirs_said, strict=True)) if pair[0] != pair[1]]
    result |= {"tokens": len(ours_said), "first_difference": None, "margin": None}
    if differences:
        litert = sides["LiteRT"]
        litert.reset()
        found = margin(litert, prompt(litert), theirs_said[: differences[0]])
        result |= {"first_difference": differences[0], "margin": found}
    return result


def _room(side: Side) -> int:
    """Tokens that fit into the cache behind a prompt: the cache's length is taken for its longest axis but the last."""
    return max(max(shape[:-1]) for shape, _ in side.decode.caches.values()) - side.prefill.count - 1


def compare(model: str, threads: int, tokens: int, rounds: int, start_rounds: int) -> dict[str, Any]:
    """All figures of a model."""
    found = rates(model, threads, tokens, rounds)
    return {"model": Path(model).name, "threads": threads, **found, "starts": starts(model, threads, start_rounds)}


def lines(found: Mapping[str, Any]) -> list[str]:
    """What is printed of a model."""
    difference = found["first_difference"]
    same = "the same"
    if difference is not None:
        same = f"DIFFERENT from number {difference} on, where LiteRT's best two are {found['margin']:.2g} apart"
    result = [f"{found['model']}, {found['threads']} threads: {found['tokens']} generated tokens are {same}"]
    for phase in ("prefill", "decode"):
        one = found[phase]
        speed = f"{one['ours']:10.1f} tokens/s  LiteRT {one['LiteRT']:10.1f}  speed {one['speed']:.3f}"
        result.append(f"  {phase:<11}{speed}")
    for name, each in found["starts"].items():
        times = f"start {1e3 * each['start']:7.1f} ms, first token after {1e3 * each['first_token']:7.1f} ms"
        result.append(f"  {name:<11}{times}, peak memory {each['memory'] / 2**20:6.1f} MiB")
    return result


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 when both sides generated the same tokens for every model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="+")
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--start-rounds", type=int, default=3, help="0 leaves start and memory out")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", choices=SIDES, help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.child:
        print(json.dumps(measure_start(arguments.child, arguments.model[0], arguments.threads[0])))
        return 0
    results = []
    for model in arguments.model:
        for threads in arguments.threads:
            results.append(compare(model, threads, arguments.tokens, arguments.rounds, arguments.start_rounds))
            if not arguments.json:
                print("\n".join(lines(results[-1])), flush=True)
    if arguments.json:
        json.dump(results, sys.stdout, indent=2)
        print()
    return 0 if all(found["first_difference"] is None for found in results) else 1


if __name__ == "__main__":
    sys.exit(main())
