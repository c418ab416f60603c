"""Planning that both compiling targets share: which nodes one kernel computes, and what lies where in memory.

- `steps.py` plans the steps of a graph by what a target `Accepts`: writers of forms, fusions, rules of parts.
  `fusions.py` has the patterns of nodes that one kernel may compute.
- `buffer_plan.py` lays tensors out in memory, `in_place.py` finds updates that need no memory of their own, `parts.py`
  tensors that lie within others. `constants.py` holds the weights, `refusals.py` the sentences of runs that a program
  refuses.
- `implicit_gemm.py` cuts convolutions into phases and taps, `epilogue.py` describes operands of epilogues,
  `choose_layout.py` blocks images by the vector width.
"""
