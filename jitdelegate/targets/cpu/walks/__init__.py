"""Loops over a product: register tiles (`tile.py`, `matmul_tile.py`), dots of long rows (`matmul_dot.py`), and rows of
depthwise convolutions (`depthwise_row.py`, `depthwise_bytes.py`).
"""
