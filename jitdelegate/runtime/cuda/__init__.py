"""Runs programs for CUDA through libcuda only. Read `session.py` first.

- `session.py`: `CudaSession(program, device, stream=None)`. `states.py`, `weights.py`: what sessions keep in device
  memory. `functions.py`: the kernels, loaded.
- `route.py`: the memory that a run uses. `work.py`: the copies and launches of a run; `graph.py`: the same as a CUDA
  graph.
- `binding.py`: the caller's memory for many runs. `memory.py`: places on the GPU and in pinned memory.
- `requests.py`: asynchronous runs. `mark.py`: the events at their ends.
- `driver.py`, `library.py`: libcuda's functions. `context.py`: the primary context. `device.py`: finds and names a GPU.
- `architectures.py`: sizes of GPUs to compile for. `toolchain.py`: which compilers are installed.
- `profile.py`: events around kernels. `timing.py`: time of work in a stream.
"""
