"""The CPU target: a lowered graph becomes LLVM IR, object code, and one flat blob with the entry of the whole graph.

Read `generate.py` first. `plan.py` makes tasks; `accepts.py` says what kernels can do and has the table of writers, one
per form. `unsigned.py` decides which int8 tensors are stored as uint8. The rooms, from the bottom:

- `code/` has the parts that kernels are written with: values, loops, loads, stores, epilogues, operands.
- `entry/` has the code around the kernels: threads, the entry of a graph, the link.
- `multiply/` has one multiply-add of vectors per kind of numbers. `sources/` has the data and panels of weights that
  these read. `walks/` has the loops over a product.
- `products/` has forms that multiply: each chooses a source, a multiply and a walk. `forms/` has the other forms.
"""
