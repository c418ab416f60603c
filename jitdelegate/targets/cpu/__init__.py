"""The CPU target: a lowered graph becomes LLVM IR, object code, and one flat blob with the entry of the whole graph.

Read `generate.py` first. `plan.py` makes tasks. `write.py` has the table of writers, one per form: `contract.py` (with
`indirect_gemm.py` and `tile.py`), `depthwise.py`, `matmul.py`, `pool.py`, `reduce.py`, `map.py` (with `nest.py` and
`transpose.py`) ... `writer.py` finds operands for them; `kernel.py` and `epilogue.py` hold what they share.
`vector_ir.py` is the builder of kernel code, `schedule.py` writes the entry and its threads, `machine.py` calls
llvmlite, `link.py` makes the blob.
"""
