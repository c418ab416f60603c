"""Operands of products. `conv_problem.py`, `phases.py` and `attention_problem.py` describe them on the host;
`pixel_gather.py`, `pixel_tiles.py`, `tile_loader.py` and `line_loader.py` load them on the device; `stored_weights.py`
has weights in the types in which they are stored.
"""
