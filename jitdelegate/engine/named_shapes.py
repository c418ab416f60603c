"""Shapes of inputs by name, as people give them before a run, for the subgraphs that have such inputs."""

from __future__ import annotations

from jitdelegate.errors import TensorError
from jitdelegate.runtime.buffers import LARGEST_SIZE, fits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jitdelegate.program.program import Port, Program, Signature
    from jitdelegate.runtime.cache.key import Shapes

    NamedShapes = Mapping[str, Sequence[int]]


def all_subgraphs(main: Program) -> list[int]:
    """The first subgraph, and those that signatures run."""
    return sorted({0, *(signature.graph for signature in main.signatures)})


def named_shapes(programs: Mapping[int, Program], given: NamedShapes) -> dict[int, Shapes]:
    """The shapes of all inputs of each subgraph that has inputs of these names and sizes; others keep the file's sizes.

    Args:
        programs: by subgraph, for the file's shapes; has the first one.
        given: sizes by a signature's name of an input, the tensor's name, or the input's number.
    Raises:
        TensorError: there is no such subgraph; says which input, and what was expected.
    """
    shapes, problems, known = dict[int, "Shapes"](), list[str](), dict[str, int]()
    for number, program in programs.items():
        names = _names(programs[0].signatures, number, program.inputs)
        known |= names
        positions = {str(position): position for position in range(len(program.inputs))} | names
        if not given.keys() <= positions.keys():
            continue
        wanted = {positions[name]: (name, tuple(sizes)) for name, sizes in given.items()}
        wrong = [told for at, one in wanted.items() if (told := _problem(*one, program.inputs[at], program))]
        problems += wrong
        if not wrong:
            ports = enumerate(program.inputs)
            shapes[number] = tuple(wanted[at][1] if at in wanted else port.shape for at, port in ports)
    if shapes:
        return shapes
    if problems:
        raise TensorError(problems[0])
    lacking = [name for name in given if name not in known]
    told = f"no input is named {lacking[0]!r}" if lacking else f"no signature has all of the inputs {[*given]}"
    raise TensorError(f"{told}, expected one of {[*known]}")


def _names(signatures: Sequence[Signature], subgraph: int, ports: Sequence[Port]) -> dict[str, int]:
    """The positions of a subgraph's inputs by their names in signatures, and by those of the tensors."""
    positions = {port.index: position for position, port in enumerate(ports)}
    own = {port.name: position for position, port in enumerate(ports)}
    signed = [pair for signature in signatures if signature.graph == subgraph for pair in signature.inputs]
    return own | {name: positions[index] for name, index in signed if index in positions}


def _problem(name: str, shape: tuple[int, ...], port: Port, program: Program) -> str:
    """Why an input cannot have these sizes; "" if it can. Where the file leaves no sizes open, LiteRT's interpreter
    takes others all the same."""
    is_open = any(-1 in other.shape_signature for other in program.inputs)
    allowed = fits(shape, port.shape_signature) if is_open else len(shape) == len(port.shape)
    if allowed and all(0 < size <= LARGEST_SIZE for size in shape):
        return ""
    expected = f"{list(port.shape_signature)}, where -1 is any size" if is_open else f"{len(port.shape)} sizes"
    return f"the shape of input {name!r} is {list(shape)}, expected {expected}"
