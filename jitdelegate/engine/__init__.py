"""The load path: from a model's file to a program that can run. Read `load_path.py` first.

- `load_path.py`: four functions: resolve the target, find the key, fetch the program, make a session.
- `model_file.py`: `ModelFile`, the content of a model, and LiteRT interpreters for it. `executable.py`: one program of
  a model, with a session.
- `specializations.py`: further programs, for other subgraphs, other shapes and for values of inputs.
- `compiled_interpreter.py`: a compiled subgraph behind LiteRT's methods; `shape_inputs.py`: one that changes its
  program with the values of inputs.
- `current_subgraph.py`: a subgraph with its current input shapes, for CompiledModel.
- `hosted_model.py`: programs inside LiteRT's own interpreter.
- `delegate_message.py`: which operators run on LiteRT. `decisions.py`: the same for reports and the debug log.
- `choose_precision.py`: the precision "auto", with given inputs or those of `example_values.py`.
- `precompile.py`: compiles programs into the cache without opening them, for devices that this machine lacks.
  `verified.py`: whether the cache has a model's programs, without compiling or writing anything.
"""
