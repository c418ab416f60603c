"""Offsets of the fields of LiteRT's C structures: the part of its binary interface that the delegate relies on.

A layout is data: the probe can try another layout, and the tests try every wrong one.
"""

from __future__ import annotations

from xxhash import xxh3_64_hexdigest

from jitdelegate.errors import OptionError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    Fields = Mapping[str, tuple[int, int]]

CONTEXT_FUNCTIONS = (
    "GetExecutionPlan",
    "ResizeTensor",
    "ReportError",
    "GetNodeAndRegistration",
    "ReplaceNodeSubsetsWithDelegateKernels",
    "PreviewDelegatePartitioning",
)
"""The fields of TfLiteContext with functions that the delegate calls."""
_STRUCTURES = ("context", "tensor", "node", "registration", "delegate", "params", "int_array")


class Structure:
    """One C structure.

    Attributes:
        size: bytes between neighbours in an array; 0 for structures that are used only through pointers.
        fields: name to (offset, size), both in bytes, in the order of their offsets.
    """

    __slots__ = ("_offsets", "fields", "size")

    def __init__(self, size: int, fields: Fields) -> None:
        self.size = size
        self.fields = dict(sorted(fields.items(), key=lambda field: field[1]))
        self._offsets = {name: offset for name, (offset, _) in self.fields.items()}

    def __getitem__(self, name: str) -> int:
        """The offset of a field."""
        return self._offsets[name]

    def end(self) -> int:
        """Offset after the last field."""
        return max(offset + size for offset, size in self.fields.values())


class Layout:
    """The layouts of all structures.

    Attributes:
        context: TfLiteContext, one per subgraph.
        tensor: TfLiteTensor.
        node: TfLiteNode.
        registration: TfLiteRegistration, passed to LiteRT by value.
        delegate: TfLiteDelegate, which jitdelegate makes.
        params: TfLiteDelegateParams, LiteRT's description of a partition.
        int_array: TfLiteIntArray, a length and that many integers.
    """

    __slots__ = ("_digest", *_STRUCTURES)

    def __init__(
        self,
        *,
        context: Structure,
        tensor: Structure,
        node: Structure,
        registration: Structure,
        delegate: Structure,
        params: Structure,
        int_array: Structure,
    ) -> None:
        self.context = context
        self.tensor = tensor
        self.node = node
        self.registration = registration
        self.delegate = delegate
        self.params = params
        self.int_array = int_array
        self._digest = ""

    def altered(self, **structures: Structure) -> Layout:
        """A copy with some structures replaced."""
        return Layout(**{name: structures.get(name, getattr(self, name)) for name in _STRUCTURES})

    def text(self) -> str:
        """One line per structure; equal layouts have equal texts."""
        return "".join(_line(name, getattr(self, name)) for name in _STRUCTURES)

    @classmethod
    def from_text(cls, text: str) -> Layout:
        """The layout of a text made by `text`.

        Raises:
            OptionError: the text describes no layout.
        """
        try:
            return cls(**dict(map(_parse, text.splitlines())))
        except (TypeError, ValueError) as error:
            raise OptionError(f"{text[:80]!r} is not the text of a layout: {error}") from error

    def digest(self) -> str:
        """16 hex digits that identify the layout."""
        self._digest = self._digest or xxh3_64_hexdigest(self.text().encode())
        return self._digest


def _line(name: str, structure: Structure) -> str:
    fields = (f"{field}:{offset}:{size}" for field, (offset, size) in structure.fields.items())
    return f"{name} {structure.size} {' '.join(fields)}\n"


def _parse(line: str) -> tuple[str, Structure]:
    name, size, *fields = line.split(" ")
    return name, Structure(int(size), dict(map(_parse_field, fields)))


def _parse_field(text: str) -> tuple[str, tuple[int, int]]:
    name, offset, size = text.split(":")
    return name, (int(offset), int(size))


LAYOUT = Layout(
    context=Structure(
        0,
        {
            "tensors_size": (0, 8),
            "GetExecutionPlan": (8, 8),
            "tensors": (16, 8),
            "ResizeTensor": (32, 8),
            "ReportError": (40, 8),
            "GetNodeAndRegistration": (56, 8),
            "ReplaceNodeSubsetsWithDelegateKernels": (64, 8),
            "PreviewDelegatePartitioning": (152, 8),
        },
    ),
    tensor=Structure(
        112,
        {
            "type": (0, 4),
            "data": (8, 8),
            "dims": (16, 8),
            "allocation_type": (32, 4),
            "bytes": (40, 8),
            "name": (56, 8),
            "is_variable": (77, 1),
        },
    ),
    node=Structure(0, {"inputs": (0, 8), "outputs": (8, 8), "user_data": (32, 8)}),
    registration=Structure(
        0,
        {
            "init": (0, 8),
            "free": (8, 8),
            "prepare": (16, 8),
            "invoke": (24, 8),
            "builtin_code": (40, 4),
            "custom_name": (48, 8),
        },
    ),
    delegate=Structure(0, {"data_": (0, 8), "Prepare": (8, 8), "flags": (40, 8)}),
    params=Structure(
        32, {"delegate": (0, 8), "nodes_to_replace": (8, 8), "input_tensors": (16, 8), "output_tensors": (24, 8)}
    ),
    int_array=Structure(0, {"size": (0, 4), "data": (4, 4)}),
)
"""As in the wheels that `trust.VERIFIED` lists: 64-bit Linux."""
