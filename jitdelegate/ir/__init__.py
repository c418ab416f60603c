"""The intermediate representation: graphs of tensors and nodes, scalar expressions and kernel forms.

Only the compile path uses it. Read in this order:

- `graph.py`: `Model`, `Graph`, `Node`, `Tensor`. `types.py`: element types.
- `expr.py`: scalar expressions; `quantized.py`: those of quantized models.
- `forms.py`, `index_forms.py`: kernel forms; `combiners.py`: kinds of reductions. `layout.py`: where the elements of an
  image lie in memory.
- `verify.py`: checks a graph after each pass. `print.py`: graphs as text. `archive.py`: graphs as files.
"""
