"""Decoders with key and value caches: jitdelegate against LiteRT's CompiledModel.

A decoder has signatures with token numbers, their positions and cache tensors as inputs, and the caches as outputs of
the same names; one signature takes one token and gives logits too, as litert-torch converts generative models. Both
sides read the same seeded prompt by the longest prefill signature, then generate tokens greedily. LiteRT gets the same
buffer as input and output of a cache.

- start, first token: milliseconds of a fresh process from the model's path until it is ready to run, and until the
  first token is known; peak memory is that of the process. "cold" is with an empty cache of programs, which LiteRT
  lacks.
- prefill, decode: microseconds of a token, medians of rounds in which both sides take turns in one process.
- weights' share of read speed: in percent of a decoded token's time, the time that this machine takes to read as many
  bytes as the file has of weights, by as many threads.

The speed is LiteRT's figure over ours: above 1 we are better. Generated tokens have to be equal for the command to
succeed; the first difference is printed, and how far LiteRT's best two logits are apart.
Where data is quantized at run time, an element halfway between two bytes may become either, so that logits differ.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from jitdelegate.commands.measurement.column import Column
from jitdelegate.commands.measurement.machine_speed import read_speed
from jitdelegate.commands.measurement.own_process import peak_bytes
from jitdelegate.commands.measurement.process import run_module
from jitdelegate.commands.measurement.timing import ratio, settle
from jitdelegate.commands.measurement.timing import seconds as seconds_of
from jitdelegate.errors import ModelError
from jitdelegate.tflite.read import read
from scripts.bench.rounds import in_turns, medians
from scripts.bench.suite import Row, Suite
from scripts.bench.weight_bytes import weight_bytes

STARTS = ("ours, cold", "ours, warm")
SAME = "the same"
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


def measure_start(arguments: argparse.Namespace) -> dict[str, float]:
    """The child: milliseconds until a side is ready and until the first token, and the most memory of this process."""
    start = time.perf_counter()
    opened = SIDES[arguments.child](str(arguments.model[0]), arguments.threads[0])
    ready = time.perf_counter()
    tokens = prompt(opened)
    prefill(opened, tokens)
    generate(opened, tokens, 1)
    first = time.perf_counter()
    generate(opened, tokens, 8)
    times = {"start, ms": 1e3 * (ready - start), "first token, ms": 1e3 * (first - start)}
    return {**times, "peak memory, MiB": peak_bytes() / 2**20}


def starts(model: Path, threads: int, rounds: int) -> dict[str, dict[str, float]]:
    """Medians of `measure_start` in processes of their own, which take turns."""

    def start(name: str, cache: str) -> dict[str, float]:
        given = ["decoders", str(model), "--child", name.partition(",")[0], "--threads", str(threads)]
        try:
            return run_module(name, "scripts.bench", given, {"XDG_CACHE_HOME": cache})[0]
        except ModelError as error:
            sys.exit(str(error))

    found: list[dict[str, dict[str, float]]] = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as cache:
            sides = {name: partial(start, name, cache) for name in (*STARTS, "LiteRT")}
            found += in_turns(sides, 1, shuffled=False)
    return {name: medians([row[name] for row in found]) for name in (*STARTS, "LiteRT") if found}


@dataclass
class Rounds:
    """What both sides did in some rounds.

    Attributes:
        seconds: of a token, by phase and side.
        generated: tokens, by side.
    """

    seconds: dict[str, dict[str, list[float]]]
    generated: dict[str, list[int]]


def take_turns(sides: Mapping[str, Side], tokens: int, rounds: int) -> Rounds:
    """Both sides read the prompt and generate tokens."""

    def one(side: Side) -> tuple[float, float, list[int]]:
        text = prompt(side)
        count = min(tokens, _room(side))
        side.reset()
        settle(lambda: prefill(side, text))
        read = statistics.median(seconds_of(lambda: prefill(side, text)) for _ in range(PREFILLS))
        settle(lambda: generate(side, text, 1))
        start = time.perf_counter()
        generated = generate(side, text, count)
        return read / side.prefill.count, (time.perf_counter() - start) / count, generated

    turns = list(in_turns({name: partial(one, side) for name, side in sides.items()}, rounds))
    phases = ("prefill", "decode")
    seconds = {phase: {name: [row[name][k] for row in turns] for name in sides} for k, phase in enumerate(phases)}
    return Rounds(seconds, {name: turns[-1][name][2] for name in sides})


def _room(side: Side) -> int:
    """Tokens that fit into the cache behind a prompt: the cache's length is taken for its longest axis but the last."""
    return max(max(shape[:-1]) for shape, _ in side.decode.caches.values()) - side.prefill.count - 1


def rows(arguments: argparse.Namespace) -> Iterator[Row]:
    """One per model, number of threads and figure; that of decode says whether the generated tokens are equal."""
    for model, threads in product(arguments.model, arguments.threads):
        about = {"model": model.name, "threads": threads}
        sides = {name: side(str(model), threads) for name, side in SIDES.items()}
        done = take_turns(sides, arguments.tokens, arguments.rounds)
        reading = weight_bytes(read(model.read_bytes()), sides["ours"].decode.key) / read_speed(threads)
        for phase, seconds in done.seconds.items():
            middle = {name: 1e6 * statistics.median(times) for name, times in seconds.items()}
            speed = ratio(seconds["LiteRT"], seconds["ours"])
            row = {"ours": middle["ours"], "litert": middle["LiteRT"], "speed": speed}
            same = difference(sides["LiteRT"], done.generated) if phase == "decode" else ""
            yield {**about, "figure": f"{phase}, us a token", **row, "tokens": same}
        ours, theirs = (100 * reading / statistics.median(done.seconds["decode"][name]) for name in SIDES)
        row = {"ours": ours, "litert": theirs, "speed": ours / theirs}
        yield {**about, "figure": "weights' share of read speed, %", **row}
        figures = starts(model, threads, arguments.start_rounds)
        for name in STARTS if figures else ():
            for figure, ours in figures[name].items():
                theirs = figures["LiteRT"][figure]
                row = {"ours": ours, "litert": theirs, "speed": theirs / ours}
                yield {**about, "figure": f"{name.partition(', ')[2]} {figure}", **row}


def difference(litert: Side, generated: Mapping[str, Sequence[int]]) -> str:
    """Whether both sides generated the same tokens, in words."""
    ours, theirs = (generated[name] for name in SIDES)
    differences = [k for k, pair in enumerate(zip(ours, theirs, strict=True)) if pair[0] != pair[1]]
    if not differences:
        return f"{len(ours)} {SAME}"
    litert.reset()
    apart = margin(litert, prompt(litert), theirs[: differences[0]])
    return f"DIFFERENT from number {differences[0]} on, where LiteRT's best two are {apart:.2g} apart"


def options(parser: argparse.ArgumentParser) -> None:
    """How long."""
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--start-rounds", type=int, default=3, help="0 leaves start and memory out")


SUITE = Suite(
    columns=(
        *(Column("model", "<40"), Column("threads", "7"), Column("figure", "<31"), Column("ours", "10.1f")),
        *(Column("litert", "10.1f", "LiteRT"), Column("speed", "6.3f"), Column("tokens", "<9")),
    ),
    rows=rows,
    rounds=9,
    options=options,
    holds=lambda rows: not any("DIFFERENT" in row.get("tokens", "") for row in rows),
    child=measure_start,
)
