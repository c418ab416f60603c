"""Executable: an opened program of a model, and the session that runs it."""

from __future__ import annotations

import _thread
import time

from jitdelegate.errors import DelegationError
from jitdelegate.program.program import ALIGNMENT as PAGE
from jitdelegate.program.program import IN_PARTITIONS, LITERT, Operator
from jitdelegate.runtime.cache.store import OFF

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from jitdelegate.engine.delegate_message import DelegateMessage
    from jitdelegate.engine.model_file import ModelFile
    from jitdelegate.program.program import Program, Signature
    from jitdelegate.runtime.cache.key import Key, Shapes, Values
    from jitdelegate.runtime.cache.store import Lookup
    from jitdelegate.runtime.io_binding import IOBinding
    from jitdelegate.runtime.memory import Workspace
    from jitdelegate.targets.target import Device

MOST_SHAPES = 8
"""Most programs for other shapes than the file's that stay in memory, the most recently used ones; of each subgraph in
LiteRT's interpreter, which resizes all of them at once. On disk there may be more: `cache.eviction.MOST_STORED`."""


class Executable:
    """A program of a model, ready to run: in a session, or on LiteRT.

    Attributes:
        source: the model.
        devices: the device of the program, then those to try if it fails.
        key: the program's key.
        lookup: the answer of the cache; not set before `fetch`.
        hosted: whether LiteRT's interpreter asks for the program's partitions; there is no session then.
        session: runs the compiled program; None for a model on LiteRT.
        notes: sentences for the report; all programs of a model share them.
        seconds: stage name to seconds, in the order of the stages.
        failure: why the compiler failed, which leaves the model on LiteRT; "" if it did not.
        damage: why the program was replaced; "" if it was not.
        lock: held while the program is replaced.
        announced: whether the operators on LiteRT have been announced, if there are any; asked before each run.
        hosted_sessions: of a profiled model, the sessions of partitions in LiteRT's interpreter, by their operators.
        workspaces: where partitions compute in LiteRT's interpreter, by the number of the context.
    """

    def __init__(
        self,
        source: ModelFile,
        devices: Sequence[Device],
        key: Key,
        *,
        hosted: bool,
        notes: list[str],
        seconds: dict[str, float],
    ) -> None:
        self.source = source
        self.devices = devices
        self.key = key
        self.lookup: Lookup
        self.hosted = hosted
        self.session: IOBinding | None = None
        self.announced = False
        self.hosted_sessions: dict[tuple[int, ...], IOBinding] = {}
        self.workspaces: dict[int, Workspace] = {}
        self.notes = notes
        self.seconds = seconds
        self.failure = self.damage = ""
        self.lock = _thread.allocate_lock()
        self._fallen_back = ""
        self._names_shapes = False
        self._is_open: bool | None = None

    @property
    def device(self) -> Device:
        """The device of the program."""
        return self.devices[0]

    @property
    def is_left_to_litert(self) -> bool:
        """Whether LiteRT is the target: nothing is compiled, for other shapes neither."""
        return self.device.target.name == LITERT

    @property
    def program(self) -> Program:
        """The program from the cache or the compiler."""
        assert self.lookup.program is not None
        return self.lookup.program

    def open(self, program: Program, workspace: Workspace | None = None) -> IOBinding:
        """A session of the program, or of one of its partitions; raises the errors of `Device.session`.

        Args:
            workspace: of the partition and others.
        """
        session = self.device.session(program, self.source.options, self.source.threads, workspace)
        session.recall(self.source.store.open_notes)
        return session

    def workspace(self) -> Workspace:
        """New memory in which partitions of the program compute, one after another."""
        from jitdelegate.runtime.memory import Workspace  # not before: most models are compiled whole

        return Workspace(self.program, self.source.threads)

    def become(self, other: Executable) -> None:
        """Run the model as another executable of it does, which nobody uses from now on."""
        vars(self).update({**vars(other), "lock": self.lock})

    def fall_back(self, reason: str) -> None:
        """Run the model on LiteRT from now on, for this reason."""
        self.session = None
        self._fallen_back = reason

    def allocate(self) -> None:
        """Prepare a model on LiteRT; a compiled one is ready."""
        start = time.perf_counter()
        if self.session is None:
            self.source.fallback().allocate()
            self.seconds["allocate"] = time.perf_counter() - start

    def note(self, sentence: str) -> None:
        """Add a sentence to the report, once."""
        if sentence not in self.notes:
            self.notes.append(sentence)

    def announce(self, *, as_stored: bool = False) -> None:
        """Call the model's listener, once, if operators run on LiteRT, unless that is the requested target.

        Call it once the shapes are known: an interpreter's inputs may be resized before its first run, and a model for
        the shapes in its file may be on LiteRT only because of these.

        Args:
            as_stored: the inputs may still get other sizes; where the model leaves them open, the message names these.
        """
        if self.announced:
            return
        self.announced, self._names_shapes = True, as_stored and self.is_open
        if self.source.listener is None or self.source.options.target == LITERT:
            return
        if self.session is not None and self.program.loader not in IN_PARTITIONS:
            return  # compiled whole; reading the operators takes longer than the rest of a warm start
        if self.program.shape_inputs and not (self.failure or self.hosted):
            return  # its runs use programs for the values of these inputs
        if any(one.place == LITERT for one in self.operators):
            self.source.listener(self)

    def message(self) -> DelegateMessage:
        """The operators on LiteRT, for a warning or an error."""
        from jitdelegate.engine.delegate_message import DelegateMessage  # most models are compiled whole

        title = subgraph_title(self.subgraph, self.signatures)
        name = f"{self.source.name}, {title}" if self.subgraph else self.source.name
        if self._names_shapes:
            name = f"{name}, for {named(self.shapes)}"
        return DelegateMessage(name, self.device.target.name, self.operators)

    def require_full_delegation(self) -> None:
        """
        Raises:
            DelegationError: an operator runs on LiteRT; says which and why.
        """
        message = self.message()
        if message.remaining:
            raise DelegationError(f"full delegation was required of {message.model}. {message.text}")

    @property
    def reason(self) -> str:
        """Why the program is not compiled: the first operator's reason."""
        return next((one.reason for one in self.operators if one.reason), "the model is not compiled for it.")

    @property
    def operators(self) -> Sequence[Operator]:
        """Where each operator runs, and why."""
        if not self._fallen_back:
            return self.program.operators
        reason = self._fallen_back
        return [Operator(index=one.index, op=one.op, place=LITERT, reason=reason) for one in self.program.operators]

    @property
    def subgraph(self) -> int:
        """The subgraph that the program computes."""
        return self.key.subgraph

    @property
    def signatures(self) -> list[str]:
        """Keys of the signatures that run the subgraph."""
        return [signature.key for signature in self.program.signatures if signature.graph == self.subgraph]

    def answers(self, signature: Signature) -> bool:
        """Whether a signature names every input of the program's subgraph, and otherwise only its outputs."""
        inputs, outputs = ({port.index for port in ports} for ports in (self.program.inputs, self.program.outputs))
        given, returned = ({index for _, index in names} for names in (signature.inputs, signature.outputs))
        return given == inputs and returned <= outputs

    @property
    def is_open(self) -> bool:
        """Whether the model leaves sizes of its inputs open."""
        if self._is_open is None:
            self._is_open = any(-1 in port.shape_signature for port in self.program.inputs)
        return self._is_open

    @property
    def shapes(self) -> Shapes:
        """The shapes of its inputs."""
        return tuple(port.shape for port in self.program.inputs)

    @property
    def resized(self) -> Shapes:
        """The shapes of its inputs, () for the file's shapes."""
        return self.key.shapes

    @property
    def values(self) -> Values:
        """(position, elements) pairs of the shape inputs that it is specialized for."""
        return self.key.values

    @property
    def own_bytes(self) -> int:
        """Bytes of code and weights that the program does not share with others of the model."""
        program = self.program
        return len(program.code) + len(program.weights) - PAGE * sum(pages for *_, pages in program.shared)

    @property
    def target(self) -> str:
        """Name of the target that runs the model."""
        return LITERT if self._fallen_back else self.program.target

    @property
    def outcome(self) -> str:
        """Outcome of the cache: "hit", "miss" or "off"."""
        hit = self.lookup.hit and not self.damage
        return "off" if self.lookup.kind == OFF else "hit" if hit else "miss"

    def __str__(self) -> str:
        return f"{self.source.name} on {self.target}"

    def close(self) -> None:
        """End the worker threads and free the memory, on a GPU too."""
        if self.session is not None:
            self.session.close()
        self.session = None


def subgraph_title(number: int, signatures: Sequence[str]) -> str:
    """`signature 'decode'`, or `subgraph 2` for a subgraph that no signature runs."""
    return ", ".join(f"signature {key!r}" for key in signatures) or f"subgraph {number}"


def named(shapes: Shapes) -> str:
    """The input shapes as part of a sentence."""
    return f"inputs of {' and '.join(str(list(shape)) for shape in shapes)}"
