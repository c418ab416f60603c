"""State of one delegate: which subgraphs of the model it finds in an interpreter, and what it delegates there."""

from __future__ import annotations

from jitdelegate.engine.litert_delegate.check import (
    Doubt,
    check_functions,
    difference,
    node_difference,
    plan_difference,
    read_tensors,
)
from jitdelegate.engine.litert_delegate.trust import libraries, litert_folder, refusal
from jitdelegate.errors import DelegationError, JitDelegateError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jitdelegate.engine.litert_delegate.check import TensorTable
    from jitdelegate.engine.litert_delegate.context import Context
    from jitdelegate.engine.litert_delegate.delegate_client import DelegateClient, Facts
    from jitdelegate.runtime.cache.directory import CacheDirectory

_LONGEST_SENTENCE = 1000
"""Most characters of a warning; in memory of an unexpected layout, a number may be a list of thousands."""


class Delegation:
    """The state of one delegate; lives as long as the delegate's Python object or one of its kernels.

    Attributes:
        client: the model.
        subgraph: the latest subgraph with delegated nodes, -1 before the first.
        interruption: the KeyboardInterrupt or similar exception that ended a callback, to be raised again by the
            caller: LiteRT turned it into a RuntimeError.
        contexts: address of a TfLiteContext to the index of its subgraph.
    """

    __slots__ = ("_directory", "_warned", "client", "contexts", "interruption", "subgraph")

    def __init__(self, client: DelegateClient, directory: CacheDirectory | None) -> None:
        self.client = client
        self.subgraph = -1
        self.interruption: BaseException | None = None
        self._directory = directory
        self.contexts: dict[int, int] = {}
        self._warned = False

    def attach(self, context: Context, registration: bytearray, delegate: int) -> None:
        """Delegate the client's nodes of a subgraph, or warn and delegate nothing.

        Raises:
            DelegationError: the client refuses the model.
            DeviceError: LiteRT failed half-way.
        """
        nodes = self._choose_or_warn(context)
        if nodes:
            context.replace(registration, nodes, delegate)

    def warn(self, sentence: str) -> None:
        """Warn the user, once in the life of a delegate."""
        if not self._warned:
            self._warned = True
            self.client.warn(f"jitdelegate stays out of this interpreter: {sentence[:_LONGEST_SENTENCE]}")

    def _choose_or_warn(self, context: Context) -> tuple[int, ...]:
        try:
            return self._choose(context)
        except DelegationError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the model runs without the delegate
            self.warn(sentence(error))
            return ()

    def _choose(self, context: Context) -> tuple[int, ...]:
        """The nodes to delegate."""
        self._refuse_unless_trusted(context)
        table = read_tensors(context.address, context.layout)
        plan = context.execution_plan()
        subgraph = self._find(context, table, plan)
        nodes = tuple(sorted(node for partition in self.client.partitions(subgraph) for node in partition))
        if nodes:
            _refuse_unless_offered(context, plan, nodes)
        return nodes

    def _refuse_unless_trusted(self, context: Context) -> None:
        trouble = refusal(self._directory, context.layout)
        if trouble:
            raise Doubt(trouble)
        check_functions(context.address, context.layout, libraries(litert_folder()))

    def _find(self, context: Context, table: TensorTable, plan: tuple[int, ...]) -> int:
        """Index of the subgraph: LiteRT offers them in order, skips some, and offers some again."""
        known = self.contexts.get(context.address)
        first = self.subgraph + 1
        reason = "it was in another one already, expected one delegate per interpreter" if first else "no subgraph"
        for number in range(first, self.client.num_subgraphs) if known is None else (known,):
            reason = _difference(context, table, plan, self.client.facts(number))
            if not reason:
                self.subgraph = self.contexts[context.address] = number
                return number
        raise Doubt(f"the model is not what LiteRT has: {reason}")


def sentence(error: BaseException) -> str:
    """The error as a sentence for the user."""
    words = str(error)
    return words if words and isinstance(error, (JitDelegateError, Doubt)) else f"{type(error).__name__}: {words}"


def _difference(context: Context, table: TensorTable, plan: tuple[int, ...], facts: Facts) -> str:
    return difference(table, facts) or plan_difference(plan, facts) or node_difference(context, plan, facts)


def _refuse_unless_offered(context: Context, plan: tuple[int, ...], nodes: tuple[int, ...]) -> None:
    missing = sorted(set(nodes) - set(plan))
    if missing:
        raise Doubt(f"another delegate has taken nodes {', '.join(map(str, missing))}")
    offered = tuple(sorted(node for partition in context.preview(nodes) for node in partition.nodes))
    if offered != nodes:
        raise Doubt(f"LiteRT offers the nodes {offered}, expected {nodes}")
