"""Which products a machine has for a form."""

from __future__ import annotations

import numpy as np

from jitdelegate.base.targets import Level
from jitdelegate.ir.forms import MatMul, Window
from jitdelegate.targets.cpu.multiply.long_products import LEAST, LongWords, byte_products
from jitdelegate.targets.cpu.multiply.matrix_bytes import MatrixBytes
from jitdelegate.targets.cpu.multiply.products import ByteProducts, PairProducts, Products, WordProducts


def constant_products(machine: Level, form: Window, dtype: str, weights: np.ndarray) -> Products:
    """How `machine` computes the form on data of type `dtype`, by weights [O, kh, kw, I]."""
    if machine.plus_matrices and form.accumulator == "int32" and weights.shape[3] % MatrixBytes.channels == 0:
        return MatrixBytes(machine, dtype == "int8")
    return products_of(machine, form, dtype, int(weights.min(initial=0)))


def products_of(machine: Level, form: Window | MatMul, dtype: str, least: int = LEAST) -> Products:
    """How `machine` computes the form on data of type `dtype`, by weights of at least `least`."""
    if form.accumulator == "float32":
        return Products(machine)
    if form.accumulator == "int64":
        return LongWords(machine) if machine.multiplies_long else WordProducts(machine)
    is_signed = dtype == "int8"
    if machine.plus_bytes:
        return ByteProducts(machine, is_signed)
    if machine.multiplies_long:
        return byte_products(machine, least, is_signed=is_signed)
    return PairProducts(machine, is_signed)
