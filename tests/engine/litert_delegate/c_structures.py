"""LiteRT's C structures as its headers declare them, and every way in which one of them can be a little different."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from jitdelegate.runtime.litert_layout import LAYOUT, Layout, Structure

POINTER = 8
Declaration = list[tuple[str, int]]

DECLARATIONS: dict[str, Declaration] = {
    "context": [
        *(("tensors_size", POINTER), ("GetExecutionPlan", POINTER), ("tensors", POINTER), ("impl_", POINTER)),
        *(("ResizeTensor", POINTER), ("ReportError", POINTER), ("AddTensors", POINTER)),
        *(("GetNodeAndRegistration", POINTER), ("ReplaceNodeSubsetsWithDelegateKernels", POINTER)),
        *(("recommended_num_threads", 4), ("GetExternalContext", POINTER), ("SetExternalContext", POINTER)),
        *(("allow_fp32_relax_to_fp16", 1), ("profiler", POINTER), ("AllocatePersistentBuffer", POINTER)),
        *(("AllocateBufferForEval", POINTER), ("RequestScratchBufferInArena", POINTER), ("GetScratchBuffer", POINTER)),
        *(("ResizeTensorExplicit", POINTER), ("PreviewDelegatePartitioning", POINTER), ("GetTensor", POINTER)),
        *(("GetEvalTensor", POINTER), ("GetModelMetadata", POINTER), ("AcquireSubgraphContext", POINTER)),
        ("ReleaseSubgraphContext", POINTER),
    ],
    "tensor": [
        *(("type", 4), ("data", POINTER), ("dims", POINTER), ("scale", 4), ("zero_point", 4), ("allocation_type", 4)),
        *(("bytes", POINTER), ("allocation", POINTER), ("name", POINTER), ("delegate", POINTER), ("buffer_handle", 4)),
        *(("data_is_stale", 1), ("is_variable", 1), ("quantization_type", 4), ("quantization_params", POINTER)),
        *(("sparsity", POINTER), ("dims_signature", POINTER)),
    ],
    "node": [
        *(("inputs", POINTER), ("outputs", POINTER), ("intermediates", POINTER), ("temporaries", POINTER)),
        *(("user_data", POINTER), ("builtin_data", POINTER), ("custom_initial_data", POINTER)),
        *(("custom_initial_data_size", 4), ("delegate", POINTER), ("might_have_side_effect", 1)),
    ],
    "registration": [
        *(("init", POINTER), ("free", POINTER), ("prepare", POINTER), ("invoke", POINTER)),
        *(("profiling_string", POINTER), ("builtin_code", 4), ("custom_name", POINTER), ("version", 4)),
        *(("registration_external", POINTER), ("async_kernel", POINTER), ("inplace_operator", POINTER)),
    ],
    "delegate": [
        *(("data_", POINTER), ("Prepare", POINTER), ("CopyFromBufferHandle", POINTER)),
        *(("CopyToBufferHandle", POINTER), ("FreeBufferHandle", POINTER), ("flags", POINTER)),
        ("opaque_delegate_builder", POINTER),
    ],
    "params": [
        *(("delegate", POINTER), ("nodes_to_replace", POINTER)),
        *(("input_tensors", POINTER), ("output_tensors", POINTER)),
    ],
    "int_array": [("size", 4), ("data", 4)],
}
ARRAYS = {"tensor", "params"}
"""Structures that lie one behind the other, so that their sizes matter."""


def structure(name: str, declaration: Declaration) -> Structure:
    """The fields that the delegate uses, where a C compiler would put them; a field without size shrinks to nothing."""
    used, place, fields, largest = getattr(LAYOUT, name).fields, 0, {}, 1
    for field, size in declaration:
        place = -(-place // max(size, 1)) * max(size, 1)
        if field in used:
            fields[field] = (place, used[field][1])
        place += size
        largest = max(largest, size)
    return Structure(-(-place // largest) * largest if name in ARRAYS else 0, fields)


def changes() -> Iterator[tuple[str, Layout]]:
    """(what was done, the layout) for each inserted, deleted or exchanged field that makes a difference."""
    known = {LAYOUT.text()}
    for name, declaration in DECLARATIONS.items():
        for change, changed in _changed(declaration):
            layout = LAYOUT.altered(**{name: structure(name, changed)})
            if layout.text() not in known:
                known.add(layout.text())
                yield f"{name}: {change}", layout


def _changed(declaration: Declaration) -> Iterator[tuple[str, Declaration]]:
    for place in range(len(declaration) + 1):
        for size in (4, POINTER):
            yield f"{size} bytes inserted at {place}", [*declaration[:place], ("new", size), *declaration[place:]]
    for place, (field, _) in enumerate(declaration):
        yield f"{field} deleted", [*declaration[:place], (field, 0), *declaration[place + 1 :]]
    for place, (one, other) in enumerate(pairwise(declaration)):
        exchanged = [*declaration[:place], other, one, *declaration[place + 2 :]]
        yield f"{one[0]} and {other[0]} exchanged", exchanged
