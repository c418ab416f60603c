"""The commands `python -m jitdelegate.<command>`, each in one file with a `main`. Read `warm.py` first.

- `overview.py`: lists the commands. `arguments.py`: arguments that several commands have.
  `interruptible.py`: runs a command for its module `jitdelegate.<command>`.
- `warm.py`: compiles models into the cache. `analyze.py`: where each operator would run, and why.
- `demo.py`: a cold and a warm start, with `demo_model.py` and `timed_start.py`.
- `replay.py`: runs kernels of a dump alone.
"""
