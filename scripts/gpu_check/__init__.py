"""Checks and measures jitdelegate on a GPU machine, with programs that `scripts/prepare_gpu_check.py` compiled before.

- `__main__.py`: one section, or all of them, each in a process of its own (`run_sections.py`, `sections.py`).
- `bundle.py`: the folder that is carried along. `row.py`: one finding. `report.py`: JSON and the table.
- A section is a module with `rows(bundle, *arguments)`, which yields its findings as they come: `device_facts.py`,
  `correctness.py`, `latency.py`, `module_load.py`, `warm_start.py`, `cold_compile.py`, `side_by_side.py`, `webgpu.py`.
- `gpu.py` opens the device and programs with jitdelegate's runtime; `child.py` runs Python processes; `sides.py`,
  `torch_side.py` and `jax_side.py` are what is measured side by side.

Only the sections that compare with other software import anything besides Python, jitdelegate and xxhash.
"""
