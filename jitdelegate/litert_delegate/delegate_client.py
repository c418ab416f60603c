"""What the delegate asks about a model, and what it asks to run: the side of the compiler in LiteRT's interpreter."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Facts:
    """What the file says about one subgraph; LiteRT's tensors and nodes are held against it before any is used.

    Attributes:
        num_tensors: of the subgraph in the file; LiteRT may have appended more.
        num_nodes: operators of the subgraph.
        tensors: (index, name, type) of the tensors to compare; types as numpy names them, TFLite's names in lower case
            where numpy has none.
        nodes: (position, inputs, outputs) of the operators to compare, -1 for inputs that are not given; may be empty.
            They tell subgraphs apart whose tensors are called the same.
        codes: (position, TFLite's number of the operator) of the operators to compare; may be empty. They tell apart
            what differs in the operators only.
    """

    __slots__ = ("codes", "nodes", "num_nodes", "num_tensors", "tensors")

    def __init__(
        self,
        num_tensors: int,
        num_nodes: int,
        tensors: Sequence[tuple[int, str, str]],
        nodes: Sequence[tuple[int, Sequence[int], Sequence[int]]] = (),
        codes: Sequence[tuple[int, int]] = (),
    ) -> None:
        self.num_tensors = num_tensors
        self.num_nodes = num_nodes
        self.tensors = tuple(tensors)
        self.nodes = tuple(nodes)
        self.codes = tuple(codes)


class DelegateKernel:
    """A partition, ready to run for one set of shapes.

    Attributes:
        inputs, outputs: tensors of the subgraph, in the order in which `run` takes their addresses. Each input is one
            that the partition reads from outside; the outputs are all that others read, and no more: LiteRT gives
            tensors inside a partition no memory. Anything else is refused.
        output_shapes: of `outputs`; LiteRT is told before it runs.
        entry: the address of `int f(TfLiteContext*, TfLiteNode*)`, which answers 0 if all went well; 0 calls `run`.
            Tensors lie where `layout.LAYOUT` says; their addresses may change from run to run.
        arguments: what that function finds in the second word of the slot that TfLiteNode.user_data points at.
    """

    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
    output_shapes: tuple[tuple[int, ...], ...] = ()
    entry: int = 0
    arguments: int = 0

    def run(self, addresses: list[int]) -> None:
        """Calculate; `addresses` are those of the inputs, then of the outputs. What it raises reaches the user."""
        raise NotImplementedError

    def close(self) -> None:
        """Give everything back; called once, and nothing runs any more."""


class DelegateClient:
    """A model that wants to run some of its operators itself.

    Attributes:
        num_subgraphs: of the file.
    """

    num_subgraphs: int = 0

    def facts(self, subgraph: int) -> Facts:
        """What to hold LiteRT's structures against."""
        raise NotImplementedError

    def partitions(self, subgraph: int) -> Sequence[tuple[int, ...]]:
        """Positions of the operators to claim, grouped as LiteRT's partitioning groups them; empty for none.

        Raises:
            DelegationError: the model must not run at all; the interpreter is not made.
        """
        raise NotImplementedError

    def kernel(self, subgraph: int, nodes: tuple[int, ...], shapes: Mapping[int, tuple[int, ...]]) -> DelegateKernel:
        """The partition of these nodes; called again whenever a shape has changed.

        Args:
            nodes: as LiteRT groups them, which may be in other groups than `partitions` says.
            shapes: of the tensors that the partition reads from outside, constants among them. Any other tensor of the
                subgraph answers the shape that it has at this moment to `shapes[index]`, and the kernel is made again
                when that one changes, too.

        Whatever this raises is the user's RuntimeError, with its words.
        """
        raise NotImplementedError

    def warn(self, sentence: str) -> None:
        """Tell the user why the delegate stays out."""
        import warnings

        from jitdelegate.errors import DelegateWarning

        warnings.warn(sentence, DelegateWarning, stacklevel=2)


class SilentClient(DelegateClient):
    """Stays out, and says nothing about it."""

    def warn(self, sentence: str) -> None:
        pass
