"""Measures the kernels of networks on a GPU machine without a network, and fits the cost model to the times.

- `__main__.py`: `prepare` anywhere, `run` on the GPU, `fit` anywhere.
- `sweep.py`: the folder that is copied to the machine: problems, with every candidate's launches and machine code.
- `prepare.py`: fills this folder, without a GPU. `run.py`: measures, and writes a table of tuned kernels and all times.
- `models.py`: the cost models of the families, computed from the lines of a table. `fit.py`: their constants.
"""
