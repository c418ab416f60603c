"""DelegateClient: the model behind a delegate in LiteRT's interpreter, and its compiled partitions."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Facts:
    """Facts of the file about one subgraph, which LiteRT's tensors and nodes are compared with before they are used.

    Attributes:
        num_tensors: of the subgraph in the file; LiteRT may have appended more.
        num_nodes: operators of the subgraph.
        tensors: (index, name, type) of the tensors to compare; types as numpy names them, TFLite's names in lower case
            where numpy has none.
        nodes: (position, inputs, outputs) of the operators to compare, -1 for inputs that are not given; may be empty.
            They distinguish subgraphs with the same tensor names.
        codes: (position, TFLite's number of the operator) of the operators to compare; may be empty. They distinguish
            subgraphs that differ in operators only.
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
        inputs, outputs: tensors of the subgraph, in the order of the addresses for `run`. The inputs are read from
            outside the partition; the outputs are exactly those that others read, since LiteRT allocates no memory for
            tensors inside a partition. Anything else is refused.
        output_shapes: shapes of `outputs`, for LiteRT's allocation.
        entry: the address of `int f(TfLiteContext*, TfLiteNode*)`, which returns 0 for success; 0 calls `run`. Tensor
            addresses may change from run to run.
        arguments: second word of the slot that TfLiteNode.user_data points at, for that function.
    """

    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
    output_shapes: tuple[tuple[int, ...], ...] = ()
    entry: int = 0
    arguments: int = 0

    def run(self, addresses: list[int]) -> None:
        """Compute; `addresses` are those of the inputs, then of the outputs. Exceptions reach the user."""
        raise NotImplementedError

    def close(self) -> None:
        """Free everything; called once, after the last run."""


class DelegateClient:
    """A model that runs some of its operators itself.

    Attributes:
        num_subgraphs: number of subgraphs of the file.
    """

    num_subgraphs: int = 0

    def facts(self, subgraph: int) -> Facts:
        """Facts to compare LiteRT's structures with."""
        raise NotImplementedError

    def partitions(self, subgraph: int) -> Sequence[tuple[int, ...]]:
        """Positions of the operators to delegate, in LiteRT's groups; empty for none.

        Raises:
            DelegationError: the model must not run; the interpreter is not made.
        """
        raise NotImplementedError

    def kernel(
        self, subgraph: int, nodes: tuple[int, ...], shapes: Mapping[int, tuple[int, ...]], context: int
    ) -> DelegateKernel:
        """The partition of these nodes; called again whenever a shape has changed.

        Args:
            nodes: one of LiteRT's groups, which may differ from those of `partitions`.
            shapes: of the tensors that the partition reads from outside, constants included. `shapes[index]` gives the
                current shape of any other tensor of the subgraph; the kernel is made again when that changes, too.
            context: number of the subgraph in one interpreter, whose kernels never run at the same time.

        Exceptions reach the user as RuntimeError, with their text.
        """
        raise NotImplementedError

    def warn(self, sentence: str) -> None:
        """Warn the user that the delegate stays out, and why."""
        import warnings

        from jitdelegate.errors import DelegateWarning

        warnings.warn(sentence, DelegateWarning, stacklevel=2)


class SilentClient(DelegateClient):
    """Delegates nothing, without a warning."""

    def warn(self, sentence: str) -> None:
        pass
