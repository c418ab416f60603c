"""The commands `python -m jitdelegate.<command>`, each in one file with a `main`. Read `warm.py` first.

- `entrance.py`: lists the commands, and runs the command of a module `jitdelegate.<command>`.
- `arguments.py`: arguments that several commands have.
- `warm.py`: compiles models into the cache, in several processes or on a cluster with `fleet/`. `analyze.py`: where
  each operator would run, and why.
- `benchmark.py`: times a model as benchmark_model does, with `benchmark_run.py`, `benchmark_inputs.py`,
  `benchmark_lines.py` and `benchmark_result.py`; a folder of models, `benchmark_suite.py`, with `suite/`. `diff.py`:
  compares outputs with those of LiteRT or numpy. All use `run_arguments.py`.
- `demo.py`: a cold and a warm start, with `demo_model.py` and `timed_start.py`; the small models of the
  guides, `guide_models.py`.
- `replay.py`: runs kernels of a dump alone.
"""
