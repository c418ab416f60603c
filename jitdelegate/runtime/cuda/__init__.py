"""Runs programs for CUDA through the driver alone. Read `session.py` first.

- `session.py`: `CudaSession(program, device, stream=None)`. `states.py`, `weights.py`: what sessions keep in device
  memory.
- `driver.py`: libcuda's functions. `context.py`: the primary context. `device.py`: finds and names a GPU.
- `architectures.py`: sizes of GPUs to compile for. `toolchain.py`: which compilers are installed.
- `profile.py`: events around kernels.
"""
