"""Planning that both compiling targets share: which nodes one kernel computes, and where tensors lie in memory.

- `steps.py` plans the steps of a graph by the abilities of a target (`Accepts`): writers of forms, fusions, rules of
  parts. `fusions.py` and `cells.py` have the patterns of nodes that one kernel may compute.
- `buffer_plan.py` lays tensors out in memory, `in_place.py` finds updates that need no memory of their own, and
  `parts.py` finds tensors that lie within others. `constants.py` has the weights, and `refusals.py` the sentences for
  runs that a program refuses.
- `implicit_gemm.py` divides convolutions into phases and taps, `epilogue.py` describes operands of epilogues, and
  `choose_layout.py` chooses images that are blocked by the vector width.
"""
