"""Large functions of a program, each as a module of its own: further programs of a process, for other input shapes or
other signatures, have most of them again, and need not compile them."""

from __future__ import annotations

import re

APART = "apart"
"""The name of a function in its own module, which says nothing about the program."""
LEAST_APART = 16_000
"""Characters of the shortest such function, which LLVM takes several milliseconds for; a module costs it one."""
FUNCTION = re.compile(r"^define internal (\w+) @([\w.]+)(\([^\n]*) \{\n(.*?)^\}\n", re.MULTILINE | re.DOTALL)
DECLARATION = re.compile(r"^declare [^\n]* @([\w.]+)\([^\n]*\n", re.MULTILINE)
SYMBOL = re.compile(r"@([\w.]+)")


def divide(ir: str) -> tuple[str, dict[str, str]]:
    """(the module without its large functions that need nothing else of it but intrinsics, the module of each of these
    functions by its name). Modules of functions that do the same are equal."""
    target, declared = ir[: ir.index("\n") + 1], {each[1]: each[0] for each in DECLARATION.finditer(ir)}
    modules: dict[str, str] = {}

    def left(function: re.Match[str]) -> str:
        result, name, head, body = function.groups()
        needed = {*SYMBOL.findall(body)} if len(body) >= LEAST_APART else {name}
        if not needed <= declared.keys():
            return function[0]
        intrinsics = "".join(declared[each] for each in sorted(needed))
        modules[name] = f"{target}{intrinsics}define {result} @{APART}{head} {{\n{body}}}\n"
        return f"declare hidden {result} @{name}{head}\n"

    return FUNCTION.sub(left, ir), modules
