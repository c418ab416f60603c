"""Writes .tflite files without a converter, for examples and tests.

    model = ModelBuilder()
    image = model.input((1, 8, 8, 3), name="image")
    weights = model.constant(np.ones((4, 3, 3, 3), np.float32))
    bias = model.constant(np.zeros(4, np.float32))
    options = {"padding": "SAME", "stride_w": 2, "stride_h": 2, "fused_activation_function": "RELU6"}
    model.output(model.op("CONV_2D", [image, weights, bias], (1, 4, 4, 4), options=options))
    content = model.finish()

Tensors are their indices in the subgraph. Operators, options and their values have TFLite's own names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jitdelegate.errors import OptionError
from jitdelegate.ir.graph import ABSENT, DimensionMetadata, Quant, Sparsity
from jitdelegate.tflite.options import BUILTIN_CODES, OPTIONS_TABLE
from jitdelegate.tflite.pack import outside, pack_model, refuse_unknown
from jitdelegate.tflite.quantization import quantization_record
from jitdelegate.tflite.record import Record
from jitdelegate.tflite.schema import UNIONS

_LARGEST_DEPRECATED_CODE = 127


class _File:
    """Buffers and operator codes, which the subgraphs of one model share."""

    def __init__(self) -> None:
        self.buffers: list[Record] = [{}]
        self.external: dict[int, bytes] = {}
        self.codes: dict[tuple[int, str, int], int] = {}

    def add_buffer(self, data: bytes, external: bool = False) -> int:
        index = len(self.buffers)
        self.buffers.append(outside(len(data)) if external else {"data": data})
        if external:
            self.external[index] = data
        return index

    def operator_code(self, number: int, custom_code: str, version: int) -> int:
        return self.codes.setdefault((number, custom_code, version), len(self.codes))


class GraphBuilder:
    """One subgraph; made by `ModelBuilder.subgraph`."""

    def __init__(self, file: _File, name: str) -> None:
        self._file = file
        self._name = name
        self._tensors: list[Record] = []
        self._operators: list[Record] = []
        self._inputs: list[int] = []
        self._outputs: list[int] = []

    def tensor(
        self,
        shape: Sequence[int],
        dtype: str = "float32",
        *,
        name: str = "",
        quant: Quant | None = None,
        shape_signature: Sequence[int] | None = None,
        is_variable: bool = False,
        has_rank: bool = True,
    ) -> int:
        """Add a runtime value, and return its index.

        Args:
            shape: sizes, outermost first.
            dtype: numpy's name, or TFLite's in lower case for types that numpy lacks.
            name: its name in the file; `t<index>` if empty.
            quant: quantization parameters; with a `block_size`, its scales become constants right before the tensor.
            shape_signature: as `shape`, with -1 for unknown sizes.
            is_variable: whether it keeps its value from run to run.
            has_rank: False if even the number of dimensions is unknown; the shape is then ().
        """
        quantization = None if quant is None else self._quantization(quant)
        index = len(self._tensors)
        self._tensors.append(
            {
                "shape": tuple(map(int, shape)),
                "type": dtype.upper(),
                "name": name or f"t{index}",
                "quantization": quantization,
                "shape_signature": shape_signature,
                "is_variable": is_variable,
                "has_rank": has_rank,
            }
        )
        return index

    def input(
        self,
        shape: Sequence[int],
        dtype: str = "float32",
        *,
        name: str = "",
        quant: Quant | None = None,
        shape_signature: Sequence[int] | None = None,
    ) -> int:
        """An input of the subgraph; as `tensor`."""
        index = self.tensor(shape, dtype, name=name, quant=quant, shape_signature=shape_signature)
        self._inputs.append(index)
        return index

    def variable(
        self, shape: Sequence[int], dtype: str = "float32", *, name: str = "", quant: Quant | None = None
    ) -> int:
        """A tensor that starts as zeros and keeps its value from run to run; as `tensor`."""
        return self.tensor(shape, dtype, name=name, quant=quant, is_variable=True)

    def constant(
        self,
        values: Any,
        *,
        name: str = "",
        quant: Quant | None = None,
        dtype: str = "",
        shape: Sequence[int] | None = None,
        sparsity: Sparsity | None = None,
        external: bool = False,
    ) -> int:
        """Add a constant, and return its index.

        Args:
            values: an array, or anything that numpy turns into one.
            dtype, shape: if they differ from the array's, as for packed int4 and sparse constants.
            sparsity: how `values` represent a sparse constant of `shape`.
            external: store the bytes behind the FlatBuffer, as in files of more than 2 GB.
            name, quant: as in `tensor`.
        """
        array = np.asarray(values)
        index = self.tensor(array.shape if shape is None else shape, dtype or array.dtype.name, name=name, quant=quant)
        self._tensors[index]["buffer"] = self._file.add_buffer(array.tobytes(), external)
        if sparsity is not None:
            self._tensors[index]["sparsity"] = _sparsity(sparsity)
        return index

    def op(
        self,
        op: str,
        inputs: Sequence[int | None],
        shape: Sequence[int],
        *,
        options: Mapping[str, Any] | None = None,
        dtype: str = "float32",
        name: str = "",
        quant: Quant | None = None,
        version: int = 1,
    ) -> int:
        """Add an operator with one output of `shape`, and return the output's index. Arguments as `node`, `tensor`."""
        output = self.tensor(shape, dtype, name=name, quant=quant)
        self.node(op, inputs, [output], options=options, version=version)
        return output

    def node(
        self,
        op: str,
        inputs: Sequence[int | None],
        outputs: Sequence[int],
        *,
        options: Mapping[str, Any] | None = None,
        version: int = 1,
        custom_options: bytes | None = None,
        intermediates: Sequence[int] = (),
    ) -> None:
        """Add an operator over existing tensors.

        Args:
            op: TFLite's builtin name, or the name of a custom operator if `custom_options` are given.
            inputs: tensors; None for absent optional ones.
            options: by TFLite's names, enums as their names; absent ones have the schema's defaults.
            version: of the operator.
            custom_options: the raw options of a custom operator; may be empty.
            intermediates: tensors whose quantization is that of values inside the operator.

        Raises:
            OptionError: unknown operator or option; `finish` finds wrong values of options.
        """
        custom = custom_options is not None
        if op not in BUILTIN_CODES and not custom:
            raise OptionError(f"{op!r} is no builtin operator; a custom one needs custom_options")
        code = self._file.operator_code(BUILTIN_CODES["CUSTOM" if custom else op], op if custom else "", version)
        operator: Record = {
            "opcode_index": code,
            "inputs": tuple(ABSENT if index is None else index for index in inputs),
            "outputs": tuple(outputs),
            "custom_options": custom_options,
            "intermediates": tuple(intermediates) or None,
        }
        self._operators.append(operator if custom else operator | _options(op, options or {}))

    def take(self, *tensors: int) -> None:
        """Append tensors to the inputs of the subgraph, where they are not made by `input`."""
        self._inputs.extend(tensors)

    def output(self, *tensors: int) -> None:
        """Append tensors to the outputs of the subgraph."""
        self._outputs.extend(tensors)

    def _quantization(self, quant: Quant) -> Record:
        if quant.block_size:
            return {"quantized_dimension": quant.axis, "details": ("BlockwiseQuantization", self._blocks(quant))}
        return quantization_record(quant)

    def _blocks(self, quant: Quant) -> Record:
        """The record of blockwise quantization, with scales and zero points added as constants."""
        zero_points = np.broadcast_to(np.array(quant.zero_points or (0,), np.int32), len(quant.scales))
        return {
            "scales": self.constant(np.array(quant.scales, np.float16)),
            "zero_points": self.constant(zero_points),
            "block_size": quant.block_size,
        }

    def _record(self) -> Record:
        return {
            "tensors": self._tensors,
            "inputs": self._inputs,
            "outputs": self._outputs,
            "operators": self._operators,
            "name": self._name,
        }


class ModelBuilder(GraphBuilder):
    """A model and its main subgraph."""

    def __init__(self, name: str = "main", description: str = "") -> None:
        super().__init__(_File(), name)
        self._description = description
        self._graphs: list[GraphBuilder] = [self]
        self._signatures: list[Record] = []
        self._metadata: list[Record] = []

    def subgraph(self, name: str = "") -> GraphBuilder:
        """Add a further subgraph; the first further one has index 1."""
        self._graphs.append(GraphBuilder(self._file, name))
        return self._graphs[-1]

    def signature(self, key: str, inputs: Mapping[str, int], outputs: Mapping[str, int], graph: int = 0) -> None:
        """Add a signature of subgraph `graph`: argument names to tensors."""
        self._signatures.append(
            {
                "signature_key": key,
                "inputs": _arguments(inputs),
                "outputs": _arguments(outputs),
                "subgraph_index": graph,
            }
        )

    def metadata(self, name: str, data: bytes) -> None:
        """Store bytes under a name."""
        self._metadata.append({"name": name, "buffer": self._file.add_buffer(data)})

    def finish(self) -> bytes:
        """The file; equal calls give equal bytes.

        Raises:
            OptionError: unknown option or type.
        """
        return pack_model(self._model(), self._file.external)

    def _model(self) -> Record:
        return {
            "version": 3,
            "operator_codes": [_operator_code(*code) for code in self._file.codes],
            "subgraphs": [graph._record() for graph in self._graphs],
            "description": self._description,
            "buffers": self._file.buffers,
            "metadata": self._metadata,
            "signature_defs": self._signatures,
        }


def _operator_code(number: int, custom_code: str, version: int) -> Record:
    return {
        "deprecated_builtin_code": min(number, _LARGEST_DEPRECATED_CODE),
        "builtin_code": number,
        "custom_code": custom_code or None,
        "version": version,
    }


def _options(op: str, options: Mapping[str, Any]) -> Record:
    table = OPTIONS_TABLE.get(op)
    if table is None:
        if options:
            raise OptionError(f"{op} has no options, found {', '.join(options)}")
        return {}
    refuse_unknown(table, options)
    union = "builtin_options" if table in UNIONS["BuiltinOptions"].values() else "builtin_options_2"
    return {union: (table, options)}


def _sparsity(sparsity: Sparsity) -> Record:
    return {
        "traversal_order": sparsity.traversal_order,
        "block_map": sparsity.block_map,
        "dim_metadata": [_dimension(dimension) for dimension in sparsity.dimensions],
    }


def _dimension(dimension: DimensionMetadata) -> Record:
    if not dimension.sparse:
        return {"format": "DENSE", "dense_size": dimension.dense_size}
    return {
        "format": "SPARSE_CSR",
        "array_segments": ("Int32Vector", {"values": dimension.segments}),
        "array_indices": ("Int32Vector", {"values": dimension.indices}),
    }


def _arguments(tensors: Mapping[str, int]) -> list[Record]:
    return [{"name": name, "tensor_index": index} for name, index in tensors.items()]
