"""Plants bugs in a PTX text: what a test of a kernel must notice to be worth having."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

Edit = Callable[[re.Match[str]], str]


class NoSuchPlaceError(Exception):
    """The text has nothing where the bug could be planted."""


@dataclass(frozen=True)
class Mutation:
    """One kind of bug.

    Attributes:
        pattern: where it fits.
        edit: what stands there then.
    """

    pattern: str
    edit: Edit

    def places(self, text: str) -> list[re.Match[str]]:
        """Where the bug changes the text."""
        found = re.finditer(self.pattern, text)
        return [match for match in found if self.edit(match) != match.group()]

    def planted(self, text: str, place: re.Match[str]) -> str:
        """The text with the bug in one place."""
        return text[: place.start()] + self.edit(place) + text[place.end() :]

    def __call__(self, text: str, number: int = 0) -> str:
        """The text with the bug in the number-th place; NoSuchPlaceError where there are fewer."""
        places = self.places(text)
        if number >= len(places):
            raise NoSuchPlaceError(f"{len(places)} matches of {self.pattern}, none numbered {number}")
        return self.planted(text, places[number])


def _without(pattern: str) -> Mutation:
    return Mutation(pattern, lambda match: "")


def _one_more(match: re.Match[str]) -> str:
    return f"{match.group(1)}{int(match.group(2)) + 1}{match.group(3)}"


def _shifted(nbytes: int) -> Edit:
    return lambda match: f"{match.group(1)}+{int(match.group(2) or 0) + nbytes}]"


def shift_global_store(text: str, nbytes: int, number: int = 0) -> str:
    """Moves the number-th store to global memory by `nbytes`."""
    return Mutation(_STORE.format("global"), _shifted(nbytes))(text, number)


def drop_branch_before_store(text: str, number: int = 0) -> str:
    """Never takes the last conditional branch before the number-th store to global memory.

    NVVM guards stores at the edge of a tensor by branches around them rather than by predicates.
    """
    stores = list(re.finditer(r"\bst\.(?:\w+\.)*?global\b", text))
    branches = list(re.finditer(r"@!?%?\w+\s+bra(?:\.uni)?\s+[^;]*;", text))
    if number >= len(stores):
        raise NoSuchPlaceError(f"{len(stores)} stores to global memory, none numbered {number}")
    before = [branch for branch in branches if branch.start() < stores[number].start()]
    if not before:
        raise NoSuchPlaceError("no conditional branch before the store")
    return text[: before[-1].start()] + text[before[-1].end() :]


COMPARISON = r"\bsetp\.(lt|le|gt|ge)\.([us]\d+)(\s+)(%\w+)([^;]*);"
_NEAREST = {"lt": "le", "le": "lt", "gt": "ge", "ge": "gt"}
_STORE = r"(\bst\.(?:[\w:]+\.)*?(?:{})[\w.:]*\s+\[\s*[%\w$]+)\s*(?:\+\s*(-?\d+))?\s*\]"
_LOAD = r"(\bld\.(?:[\w:]+\.)*?(?:global|shared)[\w.:]*\s+[^\[;]*\[\s*[%\w$]+)\s*(?:\+\s*(-?\d+))?\s*\]"

remove_barrier = _without(r"\bbar(?:rier)?(?:\.cta)?\.sync(?:\.aligned)?\s+\d+\s*;")
raise_wait_group = Mutation(
    r"\bcp\.async\.wait_group\s+(\d+)\s*;", lambda match: f"cp.async.wait_group {int(match.group(1)) + 1};"
)
"""Lets one more group of copies be under way."""
drop_zero_fill = Mutation(
    r"(\bcp\.async\.c[ag]\.[^;]*\],\s*(\d+)\s*),\s*[%\w]+\s*;", lambda match: f"{match.group(1)};"
)
"""Lets a cp.async with a source size copy all its bytes."""
drop_global_predicate = Mutation(
    r"@!?%?\w+\s+((?:ld|st)\.(?:\w+\.)*?global\b|cp\.async\.c[ag]\b)", lambda match: match.group(1)
)
"""Lets every lane execute a predicated load from, store to or copy from global memory."""
transpose_ldmatrix = Mutation(
    r"(\bldmatrix\.[\w.]*?x[124])(\.trans)?(\.shared)",
    lambda match: match.group(1) + ("" if match.group(2) else ".trans") + match.group(3),
)
swap_mma_registers = Mutation(
    r"(\bmma\.sync[^;{]*\{[^}]*\}\s*,\s*\{[^}]*\}\s*,\s*)\{\s*([%\w]+)\s*,\s*([%\w]+)\s*\}",
    lambda match: f"{match.group(1)}{{{match.group(3)}, {match.group(2)}}}",
)
"""Exchanges the two B registers of an mma that has two."""

BOUND = "a bound is one off"
MUTATIONS = {
    "bar.sync is missing": remove_barrier,
    "bar.warp.sync is missing": _without(r"\bbar\.warp\.sync\s[^;]*;"),
    "cluster barrier is missing": _without(r"\bbarrier\.cluster\.arrive[^;]*;\s*barrier\.cluster\.wait[^;]*;"),
    "launches are not waited for": _without(r"\bgriddepcontrol\.wait;"),
    "copies are not waited for": _without(r"\bcp\.async\.wait_(?:group\s+\d+|all)\s*;"),
    "one copy more is under way": raise_wait_group,
    "copies are not committed": _without(r"\bcp\.async\.commit_group\s*;"),
    "zeros are not filled in": drop_zero_fill,
    BOUND: Mutation(
        COMPARISON, lambda match: "setp.{}.{}{}{}{};".format(_NEAREST[match.group(1)], *match.groups()[1:])
    ),
    "a load or store is unguarded": drop_global_predicate,
    "a lane is another": Mutation(r"\bshfl\.sync\.(bfly|idx)\b", lambda match: "shfl.sync.up"),
    "a stride is one off": Mutation(r"(\b(?:mad|mul)\.(?:lo|wide)\.[us]\d+\s+[^;]*?,\s*)(\d+)(\s*[,;])", _one_more),
    "a store lies beside its place": Mutation(_STORE.format("global|shared"), _shifted(16)),
    "a load lies beside its place": Mutation(_LOAD, _shifted(16)),
    "rows of a matrix are columns": transpose_ldmatrix,
    "operands of mma are exchanged": swap_mma_registers,
}
"""What `scripts/mutate_kernels.py` plants in every family."""


def witness(text: str, place: re.Match[str], mutant: str) -> str:
    """The text with a trap where a bug makes a difference: a thread for which a comparison has another answer, or a
    guard holds it back, or that executes what is changed at all."""
    before, name = text[: place.start()], re.match(r"(?:setp|mul|mad)\.[\w.]*", place.group())
    if name:
        end = text.index(";", place.end() - 1) + 1
        both = text[place.start() : end], mutant[place.start() : end + len(mutant) - len(text)]
        kind = "pred" if name.group().startswith("setp") else "b64" if ".wide." in name.group() else "b32"
        right, wrong = (
            re.sub(r"%\w+", into, one, count=1) for into, one in zip(("%right", "%wrong"), both, strict=True)
        )
        differ = "xor.pred" if kind == "pred" else f"setp.ne.{kind}"
        check = f"{{ .reg .{kind} %right, %wrong; .reg .pred %differ; {right} {wrong} "
        check += f"{differ} %differ, %right, %wrong; @%differ trap; }} "
    elif guard := re.match(r"@(!?)(%?\w+)\s", place.group()):
        check = f"@{'' if guard.group(1) else '!'}{guard.group(2)} trap; "
    elif guard := re.search(r"@!?%?\w+\s+$", before):
        check = f"trap; {guard.group()}"
    else:
        check = "trap; "
    return before + check + text[place.start() :]
