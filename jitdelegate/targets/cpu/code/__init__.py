"""What kernels are written with: `vector_ir.py` is the builder of vector code, `machine.py` the instruction sets and
LLVM.

`kernel.py` has jobs, chunks and memories; `element.py`, `narrow.py` and `shuffles.py` values as they lie in memory;
`epilogue.py` what follows a result; `writer.py` the operands of nodes; `rows.py`, `fold.py` and `nest.py` loops.
"""
