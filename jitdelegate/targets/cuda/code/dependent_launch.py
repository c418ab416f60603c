"""Programmatic dependent launch: a kernel begins while the launches before it still run, and waits for them itself.

GPUs from sm_90 on have the instructions. A kernel first lets the launches after it begin, and later waits until those
that it depends on have ended and their results can be seen. Until then it does what needs no tensor: it finds its
indices, and reads constants. All kernels wait, so the end of a launch is the end of all launches before it. Source: PTX
ISA, "griddepcontrol"; CUDA Programming Guide, "Programmatic Dependent Launch and Synchronization".

NVVM would move reads of kernel parameters that nothing else may point to, and make reads of memory that never changes
(ld.global.nc) of them, on any GPU. So the pointers to tensors are results of an instruction after the wait, which NVVM
cannot look through: it makes plain reads of them. A tensor may then lie in the memory of what a launch writes, as the
rows of a cache do.
"""

from __future__ import annotations

import re

LOWEST_CAPABILITY = 90
"""Of the GPUs that have the instructions."""
LAUNCH = "griddepcontrol.launch_dependents;"
WAIT = "griddepcontrol.wait;"
MOVE = "mov.u64 $0, $1;"
"""Makes a new pointer of a kernel parameter."""
_CONTROL = re.compile(r'(?m)^.*\basm sideeffect "griddepcontrol\.[^(]*\(.*\n')
"""llvmlite 0.45 writes the arguments of a call into the next line."""


def for_architecture(text: str, architecture: str) -> str:
    """NVVM IR text without the instructions of dependent launches where the GPU has none."""
    if int(architecture.rpartition("_")[2]) >= LOWEST_CAPABILITY:
        return text
    return _CONTROL.sub("", text)
