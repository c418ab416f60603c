"""griddepcontrol: a kernel that begins before the launches it depends on have ended."""

from __future__ import annotations

from tests.gpu.simulator.decode import Decoder, Step, instruction
from tests.gpu.simulator.syntax import Instruction


@instruction("griddepcontrol")
def _control(decoder: Decoder, instruction: Instruction) -> Step:
    if instruction.parts[1:] == ("wait",):
        return lambda group: group.await_launches()
    if instruction.parts[1:] == ("launch_dependents",):
        return lambda group: None  # when the launches after this one begin makes no difference to it
    raise decoder.unknown(instruction)
