"""Loops over a product: the register tile (`register_tile.py`), functions that compute tiles (`tile.py`), dots of long
rows (`matmul_dot.py`), tiles of Winograd's algorithm (`winograd_tiles.py`), and rows of depthwise convolutions
(`depthwise_row.py`, `depthwise_bytes.py`).
"""
