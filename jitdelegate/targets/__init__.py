"""Targets turn lowered graphs into programs and run them; each implements every kernel form once.

A target is one folder here, with its `Target` in `target.py`, and one row in `table.py`. `target.py` says what a target
is to the rest of the package.

What targets share: `form_writer.py` finds what writes a form's kernels, `buffer_plan.py` (on `plan_memory.py`) lays
tensors out in memory, `implicit_gemm.py` cuts convolutions into phases and taps, `epilogue.py` says how operands go
along with an output, `choose_layout.py` blocks images by the vector width. A new form is its class in `ir/`, a row in
each target's WRITERS, and the function that the row names.
"""
