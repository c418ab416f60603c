"""The parts that kernels are written with, on the host and on the device.

- `template.py` has kernels and launches; `sizes.py` records of launch arguments, with named fields; `writer.py`
  collects launches and constants of a graph.
- `device_code.py` is the builder of kernel code. `element.py` and `narrow_integers.py` load and store elements,
  `division.py` and `axes.py` split indices into coordinates, `lanes.py` combines the values of several threads.
- `operand.py`, `index_map.py`, `strides.py` and `image_parts.py` say where operands lie. `expression.py` is scalar
  mathematics, `output.py` and `epilogue.py` are the end of a kernel, and `dependent_launch.py` is its beginning;
  `refusal.py` marks a run that LiteRT would end with an error.
- `gpu.py` and `cost.py` hold the limits and the estimates that kernels are chosen by, `choices.py` and `tables.py` have
  measured ones.
"""
