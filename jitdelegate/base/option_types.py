"""The types of the options, for type checkers alone; written by `python -m scripts.generate_option_docs`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypedDict

ExtraOutputs = bool | str | int | Sequence[str | int] | None
"""Of `extra_outputs`."""


class Checked:
    """Attributes of `DelegateOptions`."""

    target: str
    serialization_dir: str | bool | None
    prebuilt: tuple[str, ...] | None
    cache_max_bytes: int | None
    remote: str | bool | None
    remote_key: str | None
    model_token: str | None
    num_threads: int | None
    cpu_features: str
    device: int | str
    hardware_accelerators: int
    stream: int | None
    precision: str
    precision_bound: float
    precision_inputs: str | None
    is_precision_loss_allowed: bool | None
    tuning: str
    inference_preference: str
    inference_priority1: str
    inference_priority2: str
    inference_priority3: str
    max_delegated_partitions: int | None
    min_nodes_per_partition: int
    private_weights: bool
    requests_in_flight: int
    require_full_delegation: bool
    first_delegate_node_index: int
    last_delegate_node_index: int | None
    only_ops: tuple[str, ...] | None
    profile: bool
    partitioning: str
    quantized_models_allowed: bool
    experimental_flags: tuple[str, ...]
    quantized_execution: str
    quantized_rounding: str
    quantize_inputs: bool
    dequantize_outputs: bool
    extra_outputs: bool | tuple[str | int, ...] | None


class Arguments(TypedDict, total=False):
    """Arguments of `DelegateOptions`."""

    target: str
    serialization_dir: str | os.PathLike[str] | bool | None
    prebuilt: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None
    cache_max_bytes: int | str | None
    remote: str | bool | None
    remote_key: str | os.PathLike[str] | None
    model_token: str | None
    num_threads: int | None
    cpu_features: str
    device: int | str
    hardware_accelerators: int
    stream: int | None
    precision: str | None
    precision_bound: float
    precision_inputs: str | os.PathLike[str] | None
    is_precision_loss_allowed: bool | int | None
    tuning: str
    inference_preference: str | int
    inference_priority1: str | int
    inference_priority2: str | int
    inference_priority3: str | int
    max_delegated_partitions: int | None
    min_nodes_per_partition: int
    private_weights: bool | int
    requests_in_flight: int
    require_full_delegation: bool | int
    first_delegate_node_index: int
    last_delegate_node_index: int | None
    only_ops: str | list[str] | tuple[str, ...] | None
    profile: bool | int
    partitioning: str
    quantized_models_allowed: bool | int | None
    experimental_flags: int | str | list[str] | tuple[str, ...]
    quantized_execution: str
    quantized_rounding: str
    quantize_inputs: bool | int
    dequantize_outputs: bool | int
    extra_outputs: bool | str | int | Sequence[str | int] | None
    backend: str
    experimental_enable_quant: bool | int | None


class Common(TypedDict, total=False):
    """Keywords that all take; None leaves an option as it is."""

    prebuilt: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None
    cache_max_bytes: int | str | None
    remote: str | bool | None
    remote_key: str | os.PathLike[str] | None
    cpu_features: str | None
    hardware_accelerators: int | None
    stream: int | None
    precision_bound: float | None
    precision_inputs: str | os.PathLike[str] | None
    is_precision_loss_allowed: bool | int | None
    tuning: str | None
    inference_preference: str | int | None
    inference_priority1: str | int | None
    inference_priority2: str | int | None
    inference_priority3: str | int | None
    min_nodes_per_partition: int | None
    private_weights: bool | int | None
    requests_in_flight: int | None
    require_full_delegation: bool | int | None
    first_delegate_node_index: int | None
    last_delegate_node_index: int | None
    only_ops: str | list[str] | tuple[str, ...] | None
    profile: bool | int | None
    partitioning: str | None
    quantized_models_allowed: bool | int | None
    experimental_flags: int | str | list[str] | tuple[str, ...] | None
    quantized_execution: str | None
    quantized_rounding: str | None
    quantize_inputs: bool | int | None
    dequantize_outputs: bool | int | None
    extra_outputs: bool | str | int | Sequence[str | int] | None
    experimental_enable_quant: bool | int | None


class Keywords(Common, total=False):
    """Keywords of `load` and `GpuDelegate`, beside their own parameters."""

    device: int | str | None
    precision: str | None
    max_delegated_partitions: int | None
    backend: str | None


class Further(Common, total=False):
    """Further keywords of `GpuOptions`, beside its own parameters."""

    target: str | None
    num_threads: int | None


class Creation(Keywords, total=False):
    """Keywords of `CompiledModel.create`."""

    target: str | None
    serialization_dir: str | os.PathLike[str] | bool | None
    model_token: str | None
    num_threads: int | None
