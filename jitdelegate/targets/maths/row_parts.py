"""Parts of a Normalize's expressions: what is computed once per row, and what is worth keeping between its loops."""

from __future__ import annotations

from collections.abc import Iterator

from jitdelegate.ir.expr import Apply, Arg, Const, Expr
from jitdelegate.ir.quantized import Table

COSTLY = frozenset({"exp", "log", "tanh", "logistic", "sin", "cos", "erf", "pow", "atan2"})
"""Functions that take longer than a store and a load."""


def per_row(expr: Expr, rows: range, first: int) -> tuple[Expr, list[Expr]]:
    """The expression with Arg(first), Arg(first + 1), ... in place of its largest parts that depend on nothing but the
    Args in `rows`, and these parts."""
    parts: list[Expr] = []

    def replaced(part: Expr) -> Expr:
        if not part.parts:
            return part
        if is_row(part):
            if part not in parts:
                parts.append(part)
            return Arg(first + parts.index(part))
        return part.rebuilt(tuple(map(replaced, part.parts)))

    def is_row(part: Expr) -> bool:
        if isinstance(part, Arg):
            return part.index in rows
        return isinstance(part, Const) or (bool(part.parts) and all(map(is_row, part.parts)))

    return replaced(expr), parts


def is_costly(expr: Expr) -> bool:
    """Whether a value is worth storing for a later loop."""
    return any(
        isinstance(part, Table) or (isinstance(part, Apply) and part.function in COSTLY) for part in all_parts(expr)
    )


def all_parts(expr: Expr) -> Iterator[Expr]:
    """The expression and its parts, at every depth."""
    yield expr
    for part in expr.parts:
        yield from all_parts(part)


def exchanged(expr: Expr, old: Expr, new: Expr) -> Expr:
    """The expression with `new` in place of `old`."""
    return new if expr == old else expr.rebuilt(tuple(exchanged(part, old, new) for part in expr.parts))
