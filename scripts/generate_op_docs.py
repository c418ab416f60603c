"""Writes docs/ops.md, the table of operators, from their declarations.

python -m scripts.generate_op_docs          write the file
python -m scripts.generate_op_docs --check  exit 1 if the file differs from what would be written
"""

from __future__ import annotations

import argparse
import inspect
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from jitdelegate.ops import OPS, Op
from jitdelegate.ops.case import Case, Fed
from jitdelegate.ops.pointwise import Pointwise
from jitdelegate.ops.registry import ANY, MAX_ELEMENTS, MAX_RANK, NUMBERS
from jitdelegate.passes.lower import lower
from jitdelegate.targets.cuda.plan.plan import MOST_ELEMENTS
from jitdelegate.targets.cuda.sources.conv_problem import OUTSIDE

TARGET = Path(__file__).resolve().parents[1] / "docs" / "ops.md"
COMMAND = "python -m scripts.generate_op_docs"
GROUPS: Mapping[tuple[str, ...], str] = {ANY: "any", NUMBERS: "numbers"}
"""Names for types that often go together; the first that fits is taken."""

HEADER = f"""# Operators

<!-- Written by `{COMMAND}` from the declarations of the operators; do not edit. -->

{len(OPS)} operators are supported. Types, shapes and options decide whether an operator is compiled; its version does
not matter. Tensors have at most {MAX_RANK} axes and {MAX_ELEMENTS} elements. Operators that are not listed here run on
LiteRT, and so do operators that are refused; `python -m jitdelegate.analyze model.tflite` says which and why.

- **inputs**: their number, and the indices (from 0) of those that have to be constant integers.
- **types**: all values of a node have the same one of these types, except inputs and outputs with their own; *numbers*
  are {", ".join(NUMBERS)};
  *any* is {", ".join(ANY)}.
  Values of types after *wider* are converted to float32 or int32, and results back.
- **quantized**: the types of quantized data; *weights* are the types of quantized weights of float32 data.
- **fuses activations**: the option `fused_activation_function` is supported.
- **compiled to**: the kernel forms to which the operator's cases are lowered, and the number of uses that the tests
  compare with LiteRT. Without a form, an operator is evaluated while compiling.

What the CPU takes, NVIDIA GPUs take too, with any of these types. Their kernels count in 32 bits: tensors have at most
{MOST_ELEMENTS} elements and less than 2 GiB there, and the filters and the borders of a convolution at most
{-OUTSIDE - 1} rows and columns. Hidden values and states of a recurrent network have to fit into the shared memory of a
block.
"""

SMALL = ((1, 3), ())
"""Shapes that broadcast to [2, 3]."""
TITLES = (
    *("operator", "computes", "constraints", "inputs", "types", "quantized", "activation"),
    *("forms", "cases"),
)
"""What is known of an operator."""
COLUMNS = ("operator", "computes", "inputs and types", "compiled to")
"""Of the table, few enough for a page of usual width."""


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 the file is written or up to date, 1 it is stale, 2 wrong arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing")
    arguments = parser.parse_args(argv)
    content = document(OPS)
    if not arguments.check:
        TARGET.write_text(content)
        return 0
    if TARGET.exists() and TARGET.read_text() == content:
        return 0
    print(f"docs/ops.md does not say what the operators' declarations say; write it again: {COMMAND}", file=sys.stderr)
    return 1


def document(ops: Mapping[str, Op]) -> str:
    """The file's content."""
    rows = (_columns(dict(zip(TITLES, row(name, ops[name]), strict=True))) for name in sorted(ops))
    return "\n".join([HEADER, *map(_line, [COLUMNS, ["---"] * len(COLUMNS), *rows]), ""])


def _columns(known: Mapping[str, str]) -> list[str]:
    """An operator's cells, in the order of `COLUMNS`."""
    activation = "Fuses activations." if known["activation"] else ""
    computes = [known["computes"], " ".join(filter(None, (known["constraints"], activation)))]
    types = [f"{name}: {known[name]}" for name in ("inputs", "types", "quantized") if known[name]]
    compiled = [known["forms"], f"{known['cases']} cases"] if known["forms"] else []
    return [known["operator"], *("<br>".join(filter(None, lines)) for lines in (computes, types, compiled))]


def _line(cells: Iterable[str]) -> str:
    escaped = [cell.replace("|", r"\|") for cell in cells]
    return f"| {' | '.join(escaped)} |"


def row(name: str, op: Op) -> list[str]:
    """One operator's cells, in the order of TITLES."""
    first, _, rest = inspect.cleandoc(op.__doc__ or "").partition("\n\n")
    return [
        f"{name} (custom)" if op.custom else name,
        _sentence(first),
        " ".join(filter(None, (_sentence(rest) or _family(type(op)), shapes_of(op)))),
        inputs_of(op),
        types_of(op),
        quantized_types_of(op),
        "yes" if op.activates else "",
        ", ".join(forms_of(op)),
        str(len(op.cases)),
    ]


def _sentence(text: str) -> str:
    return " ".join(text.split())


def _family(definition: type[Op]) -> str:
    """What the nearest class says that is no operator itself but a kind of operators."""
    families = (each for each in definition.__mro__[1:] if issubclass(each, Op) and "name" not in vars(each))
    family = next(families)
    return "" if family is Op else _sentence((family.__doc__ or "").partition("\n\n")[0])


def shapes_of(op: Op) -> str:
    """What the operator's own check says to operands of different shapes, where it reads them element by element."""
    if not isinstance(op, Pointwise) or op.least < 2:
        return ""
    if _takes(op, [(2, 1), *[(1, 3)] * (op.least - 1)]):
        return "Operands broadcast as in numpy."
    alone = ([shape if k == place else (2, 3) for k in range(op.least)] for place in range(op.least) for shape in SMALL)
    return "" if any(_takes(op, shapes) for shapes in alone) else "Operands have one shape."


def _takes(op: Op, shapes: Sequence[tuple[int, ...]]) -> bool:
    types = (op.kinds.get(operand, op.types)[0] for operand in range(len(shapes)))
    graph = Case(tuple(map(Fed, shapes, types))).graph(op)
    return op.check(graph, graph.nodes[0]) is None


def inputs_of(op: Op) -> str:
    """For example "2 to 3, constant: 1"."""
    count = str(op.least) if op.least == op.most else f"{op.least} to {op.most}"
    constant = ", ".join(map(str, op.parameters))
    return f"{count}, constant: {constant}" if constant else count


def types_of(op: Op) -> str:
    """For example "numbers; wider: float16; output 0: bool"."""
    inputs = [f"input {number}: {_types(types)}" for number, types in op.kinds.items()]
    outputs = [f"output {number}: {_types(types)}" for number, types in op.results.items()]
    wider = [f"wider: {_types(op.narrow)}"] if op.narrow else []
    return "; ".join([_types(op.types), *wider, *inputs, *outputs])


def quantized_types_of(op: Op) -> str:
    """For example "int8, uint8; weights: int8"."""
    hybrid = [f"weights: {', '.join(op.hybrid)}"] if op.hybrid else []
    return "; ".join([*([", ".join(op.quantized)] if op.quantized else []), *hybrid])


def _types(types: Sequence[str]) -> str:
    for group, name in GROUPS.items():
        if tuple(types[: len(group)]) == group:
            return ", ".join([name, *types[len(group) :]])
    return ", ".join(types)


def forms_of(op: Op) -> list[str]:
    """The names of the forms that an operator's cases are lowered to, sorted."""
    nodes = (node for case in op.cases for node in lower(case.graph(op)).nodes)
    return sorted({type(node.form).__name__ for node in nodes})


if __name__ == "__main__":
    sys.exit(main())
