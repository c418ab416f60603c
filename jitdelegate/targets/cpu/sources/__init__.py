"""Operands of products: pixels of convolutions (`indirect_gemm.py`), perhaps converted (`converted.py`), weights
(`filters.py`), and panels of the matrix that they are multiplied by (`panels.py`).
"""
