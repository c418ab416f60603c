"""The parts that kernels are written with: `vector_ir.py` is the builder of vector code, and `machine.py` has the
instruction sets and LLVM.

`kernel.py` has jobs, chunks and memories; `element.py`, `narrow.py` and `shuffles.py` have loads, stores and
conversions of values; `epilogue.py` has the work on a result before it is stored; `writer.py` has the operands of
nodes; `rows.py`, `fold.py` and `nest.py` have loops.
"""
