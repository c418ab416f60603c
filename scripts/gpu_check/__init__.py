"""Checks and measures jitdelegate on a GPU machine, with programs that `scripts/prepare_gpu_check` compiled before.

- `__main__.py`: one section, or those of one command, each in a process of its own (`run_sections.py`, `sections.py`).
- `bundle.py`: the folder that is copied to the machine. `weights.py`: the weights of its programs. `row.py`: one
  result. `report.py`: JSON and the tables.
- A section is a module with `rows(bundle, *arguments)`, which yields its results as they are measured:
  `device_facts.py` (with `ceilings.py`), `restore.py`, `sanitizer.py`, `correctness.py`, `orders.py`, `constants.py`,
  `compiled_models.py`, `latency.py`, `launches.py`, `side_by_side.py`, `warm_start.py`.
- `gpu.py` opens the device and programs with jitdelegate's runtime; `one_by_one.py` runs them in a child, `child.py`
  starts other processes; the sanitizer observes `run_once.py`; `sides.py`, `torch_side.py` and `litert_cpu.py` are
  measured side by side; `filled_cache.py` is a user's cache.
- `apply_constants.py` writes measured constants to the package. `ceiling_kernels.py` is needed only where bundles are
  prepared.

Only the sections that compare with other software import anything besides Python, jitdelegate, numpy, xxhash, and the
packages of Python alone that bundles bring: flatbuffers and llvmlite.
"""
