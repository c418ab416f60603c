"""Products of tiles in shared memory, and which of their sums a thread holds (the protocol of `multiply.py`): on tensor
cores (`tensor_core.py`, `fragments.py`) and by float32 multiply-adds (`quads.py`). `mma_tile.py` and `ffma_tile.py`
have the tiles of a Contract, their costs, and how weights are packed for them.
"""
