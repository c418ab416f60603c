"""The CPU target: a lowered graph becomes LLVM IR, object code, and one flat blob with the entry of the whole graph.

Read `generate.py` first. `plan.py` makes tasks by what `accepts.py` says that kernels can do; it has the table of
writers, one per form. `unsigned.py` stores bytes as the multiplies want them. The rooms, from the bottom:

- `code/` is what kernels are written with: values, loops, loads, stores, epilogues, operands.
- `entry/` is the code around the kernels: threads, the entry of a graph, the link.
- `multiply/` has one multiply-add of vectors per kind of numbers, `sources/` data and panels of weights as these read
  them, `walks/` the loops over a product.
- `products/` has forms that multiply: one picks a source, a multiply and a walk. `forms/` has the other forms.
"""
