"""Planning that both compiling targets share: which nodes one kernel computes, what lies where in memory, what is in
place.

- `form_writer.py` finds the writer of a form. `chains.py` and `attention.py` find nodes that are written together.
- `buffer_plan.py` (with `plan_memory.py`) lays tensors out in memory, `in_place.py` finds updates that need no memory
  of their own, `parts.py` tensors that lie within others. `constants.py` holds the weights, `refusals.py` the
  sentences of runs that a program refuses.
- `implicit_gemm.py` cuts convolutions into phases and taps, `epilogue.py` describes operands of epilogues,
  `choose_layout.py` blocks images by the vector width.
"""
