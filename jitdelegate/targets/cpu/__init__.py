"""The CPU target: a lowered graph becomes LLVM IR, object code, and one flat blob with the entry of the whole graph.

Read `generate.py` first. `plan.py` makes tasks, `write.py` has the table of what writes each form and `writer.py` what
those ask for: `contract.py` (with `indirect_gemm.py` and `tile.py`), `depthwise.py`, `matmul.py`, `pool.py`,
`reduce.py`, `map.py` ... `vector_ir.py` is the builder that kernels are written with; `kernel.py` and `epilogue.py`
what they share; `schedule.py` the entry and its threads; `machine.py` knows llvmlite; `link.py` makes the blob.
"""
