"""A driver without a GPU: libcuda's functions on host memory, with kernels that the test provides.

- `library.py`: `Library(execute, kinds, ...)`, what `runtime.cuda.library.open_library` would give.
- `handles.py`: `Event`, `Graph`, `GlBuffer` ..., what its handles stand for; `capture.py`: streams and captures.
- `memory.py`: `HostMemory`, device memory as ranges of bytes; any object with its four methods may stand in.
- `cubins.py`: `cubin(*names)`, an image that the stub loads; `image_at(address)`, the bytes of any image.
- `install.py`: `install(monkeypatch, library)` gives it to all that opens models.
- `compiler.py`: `install_compiler(monkeypatch)` gives models one of the programs instead of compiling them.
- `simulator.py`: `Library(simulate(modules), kinds, memory=SimulatedMemory(Memory()))` executes PTX.
- `programs.py`: small programs whose kernels are Python functions.
"""
