"""Compares random graphs of quantized operators with LiteRT's default interpreter, bit for bit.

    python -m scripts.fuzz_quantized [--graphs 1000] [--seed 0] [--seconds 600] [--ops CONV_2D ADD] [--into FOLDER]

Each graph has one to six operators (scripts/quantized_graphs.py). It is compiled for one of this machine's instruction
sets, and runs by `load` with one thread and with two, by our interpreter, by the delegate in LiteRT's own, and between
protected pages, on uniform values and on those at the ends of the range. The nodes that LiteRT gives to XNNPACK are
compared with those that `ops/xnnpack.py` says it takes.

Graphs run in forked batches, because LiteRT ends the process for some. A graph that differs is reported with its seed,
after operators that do not matter have been dropped, and stored in FOLDER. Exit status: 0 all well, 1 some was not.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import ai_edge_litert.interpreter as litert
import numpy as np

import jitdelegate
from jitdelegate.ir.graph import ABSENT, Graph, Node
from jitdelegate.ir.print import graph_text
from jitdelegate.ops import OPS
from jitdelegate.ops.call import Call
from jitdelegate.ops.rounding import RULES
from jitdelegate.ops.xnnpack import takes
from jitdelegate.targets.cpu.generate import generate
from jitdelegate.targets.host import levels
from jitdelegate.tflite.read import read
from scripts.fuzz_graphs import shrink
from scripts.in_child import Failed, in_child
from scripts.lowered_models import lowered
from scripts.one_op_models import MAKERS
from scripts.quantized_graphs import quantized_graph, recurrent_model
from scripts.quantized_inputs import Inputs, hostile
from scripts.quantized_models import input_tensors, steps, written
from scripts.quantized_runs import Outputs, compared
from tests.targets.execute import program_of
from tests.targets.fenced import Machine

BATCH = 50
SECONDS_EACH = 120
RECURRENT = 25
"""Every so many models is one recurrent operator with states, which no other operator reads."""

Check = Callable[[Call], bool]


COMPARISONS = ("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL")


def _compares_wholes(call: Call) -> bool:
    quants = [tensor.quant for tensor in call.operands if call.node.op in COMPARISONS]
    return any(quant is not None and quant.scales[0] >= 1 for quant in quants)


def _broadcasts_powers(call: Call) -> bool:
    is_fixed = call.output.dtype == "int16" and bool(call.option("pot_scale_int16", True))
    return call.node.op in ("ADD", "SUB") and is_fixed and call.shape(0) != call.shape(1)


def _forgets_axes(call: Call) -> bool:
    ranks = {len(tensor.shape) for tensor in call.operands}
    return call.node.op in ("ADD", "SUB", "MUL") and call.output.size == 1 and len(ranks) > 1


NOT_OURS: Mapping[str, Check] = {
    "LiteRT ends the process in comparisons of data whose scale is 1 or more": _compares_wholes,
    "LiteRT ends the process in an ADD of int16 with pot_scale_int16 and a broadcast operand": _broadcasts_powers,
    "XNNPACK forgets axes of sums and products of one element": _forgets_axes,
}
"""What LiteRT does wrong -> whether a node meets it. Such graphs are left out."""


def check(content: bytes, seed: int) -> str:
    """ "ok", "left out: ..." with LiteRT's fault, "refused by LiteRT: ...", or "wrong: ..."."""
    graph = read(content).graphs[0]
    for fault, meets in NOT_OURS.items():
        if any(meets(Call(graph, node)) for node in graph.nodes):
            return f"left out: {fault}"
    warnings.simplefilter("ignore", jitdelegate.DelegateWarning)
    inputs = list(hostile(input_tensors(content)))
    try:
        interpreter = litert.Interpreter(model_content=content, num_threads=1)
        expected = _ran(interpreter, inputs)
    except (RuntimeError, ValueError) as error:
        return f"refused by LiteRT: {str(error).splitlines()[0]}"
    for sentence in _misjudged(graph, delegated(graph, interpreter)):
        return f"wrong: {sentence}"
    level = random.Random(seed).choice(levels())
    for road, found in _roads(content, level, inputs):
        difference = compared(found, expected, steps(content))
        if difference.differing:
            found_words = f"{difference.differing} of {difference.elements} differ, {difference.example}"
            return f"wrong: {road} on {level}: {found_words}"
    return "ok"


def _ran(interpreter: Any, inputs: Sequence[Inputs]) -> Outputs:
    """The outputs by an interpreter, ours or LiteRT's."""
    interpreter.allocate_tensors()
    found: Outputs = []
    for values in inputs:
        for detail, value in zip(interpreter.get_input_details(), values, strict=True):
            interpreter.set_tensor(detail["index"], value)
        interpreter.invoke()
        found.append([interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()])
    return found


def _roads(content: bytes, level: str, inputs: Sequence[Inputs]) -> Iterator[tuple[str, Outputs]]:
    """The outputs by each way to run a model."""
    options: dict[str, Any] = {"target": "cpu", "cpu_features": level, "serialization_dir": False}
    for threads in (1, 2):
        with jitdelegate.load(content, num_threads=threads, partitioning="all", **options) as model:
            answers = [model(*values) for values in inputs]
            yield f"load with {threads} threads", [[np.array(each) for each in _as_tuple(one)] for one in answers]
    delegate = [jitdelegate.GpuDelegate(partitioning="all", num_threads=2, **options)]
    for name, module in (("Interpreter", jitdelegate), ("LiteRT's interpreter", litert)):
        yield name, _ran(module.Interpreter(model_content=content, experimental_delegates=delegate), inputs)
    graph = lowered(content)
    if graph is not None and not graph.states:
        machine = Machine(graph, program_of(graph, generate(graph, level), level), 1, at_end=True)
        yield "code between protected pages", [machine.run(values) for values in inputs]
        machine.close()


def _as_tuple(found: Any) -> tuple[Any, ...]:
    return found if isinstance(found, tuple) else (found,)


def delegated(graph: Graph, interpreter: Any) -> set[Node]:
    """The nodes that LiteRT has given to XNNPACK, of a graph whose nodes are all needed.

    LiteRT lists, after the nodes, one DELEGATE node for each partition, with its inputs and outputs.
    """
    found: set[Node] = set()
    for detail in interpreter._get_ops_details()[len(graph.nodes) :]:  # no public method tells
        known, left = {int(index) for index in detail["inputs"]}, [int(index) for index in detail["outputs"]]
        while left:
            index = left.pop()
            writer = graph.writer[index] if index != ABSENT else None
            if writer is not None and index not in known:
                found.add(graph.nodes[writer])
                left += graph.nodes[writer].inputs
    return found


def _misjudged(graph: Graph, theirs: set[Node]) -> Iterator[str]:
    """Nodes that round in another way in XNNPACK, and of which `takes` has not said what LiteRT does with them."""
    for node in graph.nodes:
        op, call = OPS[node.op], Call(graph, node)
        rule = RULES.get((node.op, call.tensor(getattr(op, "data_operand", 0)).dtype))
        if rule is None or not rule.xnnpack or op.check(graph, node) is not None:
            continue
        if takes(call) != (node in theirs):
            yield f"LiteRT gives {node.op} to {'XNNPACK' if node in theirs else 'its own kernels'}, unlike takes()"


def answers(jobs: Sequence[Callable[[], str]], contents: Sequence[bytes]) -> Iterator[str]:
    """As `scripts.in_child`; a job that fails is "wrong: ...", or left out where LiteRT alone fails as well."""
    for content, answer in zip(contents, in_child(jobs, SECONDS_EACH), strict=True):
        if isinstance(answer, Failed):
            (alone,) = in_child([lambda content=content: _alone(content)], SECONDS_EACH)
            told = answer.reason.strip().splitlines()
            yield (
                "left out: LiteRT ends the process" if isinstance(alone, Failed) else f"wrong: {' / '.join(told[-3:])}"
            )
        else:
            yield answer


def _alone(content: bytes) -> int:
    return len(_ran(litert.Interpreter(model_content=content, num_threads=1), list(hostile(input_tensors(content)))))


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 all well, 1 some graph was not, 2 wrong arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0, help="of the first graph; the next one has the next seed")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start no further batch after this time")
    parser.add_argument("--ops", nargs="+", choices=MAKERS, default=tuple(MAKERS), metavar="OP")
    parser.add_argument("--into", type=Path, help="folder for models that differ")
    arguments = parser.parse_args(argv)
    end, counts = time.monotonic() + arguments.seconds, Counter[str]()
    last = arguments.seed + arguments.graphs
    for start in range(arguments.seed, last, BATCH):
        if time.monotonic() > end:
            break
        seeds = range(start, min(start + BATCH, last))
        contents = [_drawn(seed, arguments.ops) for seed in seeds]
        jobs = [
            lambda content=content, seed=seed: check(content, seed)
            for content, seed in zip(contents, seeds, strict=True)
        ]
        for seed, content, answer in zip(seeds, contents, answers(jobs, contents), strict=True):
            counts[answer.split(":")[0]] += 1
            if answer.startswith("wrong"):
                _report(content, seed, answer, arguments.into)
            elif answer != "ok":
                counts[f"  {answer}"] += 1
    print("\n".join(f"{number:>6} {kind}" for kind, number in sorted(counts.items())))
    return 1 if counts["wrong"] else 0


def _drawn(seed: int, ops: Sequence[str]) -> bytes:
    has_states = seed % RECURRENT == RECURRENT - 1 and len(ops) == len(MAKERS)
    return recurrent_model(seed) if has_states else quantized_graph(seed, ops)[0]


def _report(content: bytes, seed: int, answer: str, into: Path | None) -> None:
    def again(graph: Graph) -> str:
        smaller = written(graph)
        (found,) = answers([lambda: check(smaller, seed)], [smaller])
        return found

    graph = read(content).graphs[0]
    print(f"seed {seed}: {answer}")
    if not any(tensor.is_variable for tensor in graph.tensors):
        graph = shrink(graph, lambda graph: again(graph).startswith("wrong"))
        content = written(graph)
        print(f"  shrunk: {again(graph)}")
    print(graph_text(graph), flush=True)
    if into is not None:
        into.mkdir(parents=True, exist_ok=True)
        (into / f"quantized_{seed}.tflite").write_bytes(content)


if __name__ == "__main__":
    sys.exit(main())
