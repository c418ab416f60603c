"""The compile path: from a model's bytes to a program's bytes. Read `compile.py` first.

- `entry.py`: what the load path calls; turns every failure of the compiler into one error. `rare_collection.py`: fewer
  searches for garbage meanwhile.
- `compile.py`: the table of contents. `codegen.py`: a lowered graph to the code of its target.
- `partitioned.py`: graphs that are compiled in part; `litert_partitions.py`: those for LiteRT's own interpreter.
- `litert_child.py`: asks in a child process whether LiteRT survives a model.
- `program_metadata.py`: ports, states and operators of a program. `trace.py`: dumps and the debug log.
"""
