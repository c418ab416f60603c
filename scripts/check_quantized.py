"""Compare the results of quantized models with LiteRT's, bit for bit, as a whole and operator by operator.

    python -m scripts.check_quantized [FOLDER_OR_FILE ...] [--only models|operators] [--inputs 20] [--every-node]
        [--drawn 100] [--ops CONV_2D ADD] [--target cpu|reference|simulator] [--cpu-features x86-64-v3]
        [--rounding litert|reference] [--json]

Whole models run on seeded noise and on two photographs, next to LiteRT's default interpreter (XNNPACK where it takes an
operator), or next to its reference kernels with `--rounding reference`. Their logits are compared as well, as further
outputs of the same model. Models with float activations are judged by their NRMSE, which is given for
LiteRT's optimized kernels too.

Operators: every node runs as a model of its own, on the values that it gets in the whole model, on others that reach
the ends of the range, and once more with powers of two for scales, which force ties. Nodes of one operator with the
same types, options and sizes are checked once, unless `--every-node`. The table says by operator and types how many
elements differ, and which nodes are not compiled. `--drawn` adds so many random models of each operator
(scripts/one_op_models.py).

Each model runs in child processes. Exit status 1 if an element of an integer model or operator differs.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path

from jitdelegate.errors import CompileError, JitDelegateError, ModelError
from jitdelegate.ir.graph import Tensor
from jitdelegate.tflite.read import read
from scripts.in_child import Failed, in_child
from scripts.models import models_in
from scripts.one_op_models import MAKERS, one_op_models
from scripts.quantized_inputs import Inputs, hostile, pictures, seeded
from scripts.quantized_models import (
    OneNode,
    input_tensors,
    is_hybrid,
    is_integer,
    one_node_models,
    steps,
    whole_with_logits,
    with_ties,
)
from scripts.quantized_runs import Difference, compared, kept_tensors, run_litert, run_ours

SECONDS = 600
MODELS, OPERATORS = "models", "operators"


@dataclass(frozen=True, slots=True)
class Settings:
    """How ours is run, and what it is compared with."""

    target: str
    rounding: str
    inputs: int
    every_node: bool
    features: str


@dataclass(frozen=True, slots=True)
class Row:
    """What came of one model or one node of it.

    Attributes:
        model: the file's name.
        name: "outputs", "logits", or the operator.
        types: "integer" or "dynamic range", or the operator's types.
        what: "compared"; or where a node was not compiled, or one side refused the model, that.
        difference: from LiteRT.
        spread: NRMSE between LiteRT's optimized kernels and its default ones; for float activations only.
        reasons: of a whole model, why operators are not compiled.
        position: of a node in its model, and with which values.
    """

    model: str
    name: str
    types: str
    what: str = "compared"
    difference: Difference = field(default_factory=Difference)
    spread: float | None = None
    reasons: tuple[str, ...] = ()
    position: str = ""

    @property
    def differs(self) -> bool:
        """Whether the row is a failure: integers that are not equal, or a crash."""
        return self.what == "crashed" or (self.spread is None and self.difference.differing > 0)


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 everything compared is equal, 1 some is not, 2 wrong arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", nargs="*", type=Path)
    parser.add_argument("--only", choices=(MODELS, OPERATORS))
    parser.add_argument("--drawn", type=int, default=0, help="random models of each operator")
    parser.add_argument("--ops", nargs="+", choices=MAKERS, default=tuple(MAKERS), metavar="OP", help="of --drawn")
    parser.add_argument("--inputs", type=int, default=20, help="sets of seeded noise for whole models")
    parser.add_argument("--every-node", action="store_true")
    parser.add_argument("--target", choices=("cpu", "reference", "simulator"), default="cpu")
    parser.add_argument("--cpu-features", default="auto", help="instruction set of --target cpu")
    parser.add_argument("--rounding", choices=("litert", "reference"), default="litert")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args(argv)
    every, features = arguments.every_node, arguments.cpu_features
    settings = Settings(arguments.target, arguments.rounding, arguments.inputs, every, features)
    files = [file for path in arguments.path for file in models_in(path)]
    if not files and not arguments.drawn:
        parser.error("there is nothing to check: no .tflite file, and no --drawn")
    parts = (arguments.only,) if arguments.only else (MODELS, OPERATORS)
    found: list[Row] = []
    for row in chain(
        *(check(file, settings, parts) for file in files), drawn(arguments.ops, arguments.drawn, settings)
    ):
        found.append(row)
        if not arguments.json and (row.name in ("outputs", "logits") or row.differs):
            print(line(row), flush=True)
    if arguments.json:
        print(json.dumps([asdict(row) for row in found], indent=2))
    else:
        print("\n".join(table([row for row in found if row.name not in ("outputs", "logits")])))
    return 1 if any(row.differs for row in found) else 0


def check(file: Path, settings: Settings, parts: Sequence[str] = (MODELS, OPERATORS)) -> Iterator[Row]:
    """The rows of one file; none if nothing in it is quantized, or it cannot be read."""
    content = file.read_bytes()
    try:
        graph = read(content).graphs[0]
    except ModelError:
        return
    types = "integer" if is_integer(graph) else "dynamic range" if is_hybrid(graph) else ""
    if types and MODELS in parts:
        jobs = [partial(_whole, file.name, content, types, name, settings) for name in ("outputs", "logits")]
        for name, answer in zip(("outputs", "logits"), in_child(jobs, SECONDS), strict=True):
            yield _crashed(file.name, name, types, content, answer) if isinstance(answer, Failed) else answer
    if types and OPERATORS in parts:
        yield from _operators(file.name, content, settings)


def _crashed(model: str, name: str, types: str, content: bytes, answer: Failed) -> Row:
    """The row of a model that ended its process, which LiteRT may have done alone."""
    graph = read(content).graphs[0]
    (alone,) = in_child([partial(run_litert, content, list(seeded(graph, 1)))], SECONDS)
    what = "crashes LiteRT" if isinstance(alone, Failed) else "crashed"
    return Row(model, name, types, what, reasons=_last_line(answer))


def _last_line(answer: object) -> tuple[str, ...]:
    return (answer.reason.strip().splitlines()[-1],) if isinstance(answer, Failed) else ()


def _whole(name: str, content: bytes, types: str, outputs: str, settings: Settings) -> Row:
    """A whole model, or the same with its logits as outputs."""
    row = partial(Row, name, outputs, types)
    if outputs == "logits":
        try:
            content = whole_with_logits(content)
        except CompileError as error:
            return row("not cut", reasons=(str(error),))
    graph = read(content).graphs[0]
    inputs = [*seeded(graph, settings.inputs), *pictures(graph)]
    try:
        expected = run_litert(content, inputs, settings.rounding)
    except (RuntimeError, ValueError) as error:
        return row("refused by LiteRT", reasons=(str(error).splitlines()[0],))
    spread = None
    if types == "dynamic range":
        spread = compared(run_litert(content, inputs, "optimized"), expected, steps(content)).nrmse
    try:
        ran = run_ours(content, inputs, settings.target, settings.rounding, settings.features)
    except JitDelegateError as error:
        return row("refused", reasons=(str(error),))
    difference = compared(ran.outputs, expected, steps(content)) if ran.outputs else Difference()
    counts = Counter(f"{op}: {reason}" for op, reason in ran.refused)
    reasons = tuple(f"{count} {reason}" for reason, count in counts.most_common())
    what = f"{ran.operators - len(ran.refused)} of {ran.operators} compiled"
    return row(what, difference, spread, reasons)


def _operators(model: str, content: bytes, settings: Settings) -> Iterator[Row]:
    """One row for each way to run each node."""
    nodes = list(one_node_models(content))
    if not settings.every_node:
        nodes = list({node.kind: node for node in reversed(nodes)}.values())[::-1]
    (kept,) = in_child([partial(_kept, content, nodes)], SECONDS)
    if isinstance(kept, Failed):
        kept = {}
    jobs = [partial(_one_node, model, node, _own_inputs(node, kept), settings) for node in nodes]
    for node, answer in zip(nodes, in_child(jobs, SECONDS), strict=True):
        if isinstance(answer, Failed):
            place = f"node {node.position}"
            yield Row(model, node.op, node.types, "crashed", reasons=_last_line(answer), position=place)
        else:
            yield from answer


def _kept(content: bytes, nodes: Sequence[OneNode]) -> dict[int, list]:
    """Values of the inputs of all nodes, on noise and on a photograph."""
    graph = read(content).graphs[0]
    wanted = {index for node in nodes for index in node.inputs}
    found: dict[int, list] = {index: [] for index in wanted}
    for inputs in [*seeded(graph, 2), *pictures(graph)][1:3]:
        for index, value in kept_tensors(content, inputs, wanted).items():
            found[index].append(value)
    return found


def _own_inputs(node: OneNode, kept: dict[int, list]) -> list[Inputs]:
    """The values that the node gets in the whole model; none where LiteRT does not run that."""
    return [list(each) for each in zip(*(kept.get(index, ()) for index in node.inputs), strict=True)]


def _one_node(model: str, node: OneNode, own: list[Inputs], settings: Settings) -> list[Row]:
    """The node as it is, and with powers of two for scales."""
    tied = with_ties(node.content)
    variants = [("", node.content)] + ([("ties", tied)] if tied is not None else [])
    row = partial(Row, model, node.op, node.types)
    return [
        _one_operator(partial(row, position=f"node {node.position} {name}".strip()), content, own, settings)
        for name, content in variants
    ]


def drawn(ops: Sequence[str], count: int, settings: Settings) -> Iterator[Row]:
    """One row for each of `count` random models of each operator."""
    models = list(one_op_models(ops, count))
    rows = [partial(Row, "", each.op, each.types, position=each.what) for each in models]
    jobs = [partial(_one_operator, row, each.content, [], settings) for row, each in zip(rows, models, strict=True)]
    for row, answer in zip(rows, in_child(jobs, SECONDS), strict=True):
        yield row("crashed", reasons=_last_line(answer)) if isinstance(answer, Failed) else answer


def _one_operator(row: Callable[..., Row], content: bytes, own: list[Inputs], settings: Settings) -> Row:
    """A model of one operator, on the values that it gets in a whole model and on hostile ones."""
    tensors = input_tensors(content)
    takes_all = not own or (any(steps(content)) and not any(map(_is_index, tensors)))
    inputs = [*own, *(hostile(tensors) if takes_all else ())]
    try:
        expected = run_litert(content, inputs, settings.rounding)
    except (RuntimeError, ValueError) as error:
        return row("refused by LiteRT", reasons=(str(error).splitlines()[0],))
    try:
        ran = run_ours(content, inputs, settings.target, settings.rounding, settings.features)
    except JitDelegateError as error:
        return row("refused", reasons=(str(error),))
    if ran.refused:
        return row("not compiled", reasons=tuple(reason for _, reason in ran.refused))
    difference = compared(ran.outputs, expected, steps(content))
    spread = None
    if tensors[0].dtype == "float32" and not any(steps(content)):
        spread = compared(run_litert(content, inputs, "optimized"), expected, steps(content)).nrmse
    return row(difference=difference, spread=spread)


def _is_index(tensor: Tensor) -> bool:
    return tensor.dtype in ("int32", "int64") and not tensor.is_quantized


def line(row: Row) -> str:
    """A row in words."""
    found = row.difference
    told = [f"{row.model:<56} {row.name:<18} {row.types:<14} {row.position:<14} {row.what}"]
    if found.elements:
        told.append(f"{found.differing} of {found.elements} differ, largest {found.largest:g}, NRMSE {found.nrmse:.2g}")
        told += [found.example] if found.example else []
    if row.spread is not None:
        told.append(f"LiteRT's own spread {row.spread:.2g}")
    return "; ".join([*told, *row.reasons])


def table(rows: Sequence[Row]) -> Iterator[str]:
    """One line per operator and types, then why nodes are not compiled."""
    groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        groups[row.name, row.types].append(row)
    titles = f"{'runs':>6}{'compared':>9}{'elements':>12}{'differing':>10}{'largest':>9}  {'NRMSE':>8}"
    yield f"{'operator':<32}{'types':<28}{titles}"
    for (name, types), found in sorted(groups.items()):
        total = sum((row.difference for row in found), Difference())
        count = sum(row.what == "compared" for row in found)
        numbers = f"{len(found):>6}{count:>9}{total.elements:>12}{total.differing:>10}{total.largest:>9g}"
        yield f"{name:<32}{types:<28}{numbers}  {total.nrmse:>8.1e}"
    left = Counter((row.name, row.types, row.what, *row.reasons) for row in rows if row.what != "compared")
    for words, count in left.most_common():
        yield f"{count:>6} {': '.join(words)}"


if __name__ == "__main__":
    sys.exit(main())
