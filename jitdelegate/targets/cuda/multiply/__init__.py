"""Products of tiles: tensor cores in `tensor_core.py` and `fragments.py`, tiles and costs with them in `mma_tile.py`
and without them in `ffma_tile.py`.
"""
