"""Looks for damaged .tflite files that end the process inside LiteRT; jitdelegate has to refuse them.

    python -m scripts.fuzz_litert --rounds 200 --seed 1 [MODEL ...]

Without MODEL, the models are all cases of all operators, one operator each. Only numbers are changed that leave the
file well-formed: options, sizes of shapes, types, operators, small constants. LiteRT prepares each mutant in a child
process; jitdelegate then opens those at which that process died. Exit status: 0 none of these died, 1 some did.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from jitdelegate.errors import JitDelegateError, ModelError
from jitdelegate.ops import OPS
from jitdelegate.tflite.options import BUILTIN_CODES
from jitdelegate.tflite.read import read
from scripts.fuzz_reader import Place, survey

VALUES = (0, 1, 2, 3, 7, 127, 128, 255, 65536, 0x3FFFFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF)
ANSWERED, REFUSED = 0, 3
"""Exit statuses of a child; others than these and signals are bugs."""
UNHARMED = ("answered", "refused", "slow")


def damaged(content: bytes, places: list[Place], dice: random.Random) -> bytes:
    """A copy with one or two other numbers."""
    copy = bytearray(content)
    for _ in range(dice.choice((1, 1, 1, 2))):
        place = dice.choice(places)
        value = dice.choice(VALUES) & ((1 << 8 * place.width) - 1)
        copy[place.position : place.position + place.width] = value.to_bytes(place.width, "little")
    return bytes(copy)


def readable(content: bytes, places: list[Place], dice: random.Random) -> bytes:
    """A damaged copy that our reader takes; all others end there (`scripts.fuzz_reader`)."""
    while True:
        mutant = damaged(content, places, dice)
        try:
            read(mutant)
        except ModelError:
            continue
        return mutant


def outcome(run: Callable[[bytes], int], content: bytes, seconds: float = 20.0) -> str:
    """ "answered", "refused", "slow", the name of the signal that ended the child, or "failed" for any other error."""
    child = os.fork()
    if child == 0:
        signal.alarm(int(seconds))
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        status = 1
        try:
            status = run(content)
        finally:
            os._exit(status)
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        return "slow" if name in ("SIGALRM", "SIGKILL") else name
    return {ANSWERED: "answered", REFUSED: "refused"}.get(os.WEXITSTATUS(status), "failed")


def open_here(content: bytes) -> int:
    """Load a model as a user does; `open_model` prepares it in LiteRT where that runs it."""
    import jitdelegate

    warnings.simplefilter("ignore")
    try:
        with jitdelegate.load(content, serialization_dir=False, num_threads=1):
            return ANSWERED
    except JitDelegateError:
        return REFUSED


def open_in_litert(content: bytes) -> int:
    """Prepare a model in LiteRT alone."""
    from ai_edge_litert.interpreter import Interpreter

    try:
        Interpreter(model_content=content, num_threads=1).allocate_tensors()
    except (ValueError, RuntimeError):
        return REFUSED
    return ANSWERED


def difference(before: bytes, after: bytes) -> str:
    """What our reader finds changed in the first graph."""
    try:
        graphs = read(before).graphs[0], read(after).graphs[0]
    except JitDelegateError as error:
        return f"refused: {error}"
    found = []
    for node, other in zip(*(graph.nodes for graph in graphs), strict=False):
        if (node.op, node.inputs, node.outputs) != (other.op, other.inputs, other.outputs):
            found.append(f"{node.op}{node.inputs} -> {other.op}{other.inputs}")
        changed = {name: other.attrs.get(name) for name in node.attrs if other.attrs.get(name) != node.attrs[name]}
        found += [f"{node.op}.{name}={value}" for name, value in changed.items()]
    for index, (tensor, other) in enumerate(zip(*(graph.tensors for graph in graphs), strict=False)):
        for name in ("shape", "dtype", "quant"):
            if getattr(tensor, name) != getattr(other, name):
                found.append(f"tensor {index}.{name}={getattr(other, name)}"[:80])
    return "; ".join(found) or "other"


def models(paths: list[Path]) -> Iterator[tuple[str, bytes]]:
    """Name and content."""
    for path in paths:
        yield path.name, path.read_bytes()
    if paths:
        return
    from tests.ops.litert import model_of

    for name, op in OPS.items():
        for number, case in enumerate(op.cases):
            graph = case.graph(op)
            if graph.nodes[0].op in BUILTIN_CODES and op.check(graph, graph.nodes[0]) is None:
                yield f"{name}-{number}", model_of(graph)


def main() -> int:
    """Exit status: 0 no child of jitdelegate died, 1 some did."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", metavar="MODEL", nargs="*", type=Path)
    parser.add_argument("--rounds", type=int, default=20, help="mutants of every model")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after")
    parser.add_argument("--keep", type=Path, help="an existing folder for mutants that a child died of")
    arguments = parser.parse_args()
    open_in_litert(b"")  # children find it imported
    counts: Counter[str] = Counter()
    died = 0
    end = time.monotonic() + arguments.seconds
    for name, content in models(arguments.models):
        places = [place for place in survey(content).places if place.is_value]
        dice = random.Random(f"{arguments.seed} {name}")
        for number in range(arguments.rounds):
            if time.monotonic() > end:
                break
            mutant = readable(content, places, dice)
            found = outcome(open_in_litert, mutant)
            counts[f"LiteRT: {found}"] += 1
            if found not in UNHARMED:
                ours = outcome(open_here, mutant)
                counts[f"then jitdelegate: {ours}"] += 1
                died += ours not in UNHARMED
                print(f"{name} mutant {number}: {found}, {ours}: {difference(content, mutant)}", flush=True)
                if arguments.keep:
                    (arguments.keep / f"{name}.{arguments.seed}.{number}.tflite".replace("/", "_")).write_bytes(mutant)
    print(", ".join(f"{name} {count}" for name, count in sorted(counts.items())))
    return 1 if died else 0


if __name__ == "__main__":
    sys.exit(main())
