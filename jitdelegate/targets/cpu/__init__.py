"""The CPU target: a lowered graph becomes LLVM IR, object code, and one flat blob with the entry of the whole graph.

Read `generate.py` first. `vector_ir.py` is the builder that kernels are written with; `kernel.py` what they share;
`contract.py` (with `sweep.py` and `tile.py`), `depthwise.py`, `pool.py`, `reduce.py`, `map.py` hold one generator per
form; `schedule.py` the entry and its threads; `machine.py` knows llvmlite; `link.py` makes the blob.
"""
