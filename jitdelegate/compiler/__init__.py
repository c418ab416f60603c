"""The compile path: from a model's bytes to a program's bytes. Read `compile.py` first.

- `entry.py`: the functions that the load path calls; every failure of the compiler becomes one error there.
  `rare_collection.py`: less frequent garbage collection while compiling, and memory that is given back afterwards.
- `compile.py`: the table of contents. `codegen.py`: a lowered graph to the code of its target.
- `partitioned.py`: graphs of which a part is compiled; `litert_partitions.py`: such graphs for LiteRT's own
  interpreter.
- `litert_child.py`: tries in a child process whether LiteRT can open a model without ending the process.
- `program_metadata.py`: ports, states and operators of a program. `trace.py`: dumps and the debug log.
"""
