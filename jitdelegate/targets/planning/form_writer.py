"""Finds the writer of a form on a target. A writer's module is imported when one of its forms first occurs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from typing import Any

from jitdelegate.errors import CompileError
from jitdelegate.ir.forms import Form, Window
from jitdelegate.ir.graph import Node, form_of

Writers = Mapping[type[Form], str]
"""Form -> "module.function" in the target's package."""


def form_writer(package: str, writers: Writers, node: Node) -> Callable[..., Any]:
    """The function of the target's `package` that writes the kernels of a node's form.

    Raises:
        CompileError: the target has no writer for the form.
    """
    form = type(form_of(node))
    if form not in writers:
        target = package.rpartition(".")[2].upper()
        raise CompileError(f"{node.op} needs a {form.__name__}, which has no {target} kernel.")
    return load(package, writers[form])


def check_sums(node: Node, integers: Collection[type[Form]] = ()) -> None:
    """Check that a window form asks for sums that kernels implement: those of its defaults, which are sums of floats,
    or for the forms in `integers` any.

    Raises:
        CompileError: another accumulator, input zero or halo value is asked for.
    """
    form = form_of(node)
    if not isinstance(form, Window) or type(form) in integers:
        return
    asked, known = ((one.accumulator, one.input_zero, one.halo_value) for one in (form, type(form)()))
    if asked != known:
        names = "(accumulator, input zero, halo value)"
        raise CompileError(f"{node.op} needs sums by {names} = {asked}, but kernels only do {known}.")


def load(package: str, name: str) -> Callable[..., Any]:
    """The function "module.function" of a package."""
    module, _, function = name.rpartition(".")
    found: Callable[..., Any] = getattr(import_module(f"{package}.{module}"), function)
    return found
