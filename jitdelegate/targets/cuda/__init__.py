"""The CUDA target: every kernel form as a Numba CUDA kernel, compiled without a GPU and without a driver."""
