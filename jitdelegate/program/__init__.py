"""The program file: everything a compiled model needs at run time, in one relocatable, checked file.

Read `program.py` first.

- `program.py`: plain classes `Program`, `Port`, `Signature`, `Operator`, `Kernel`, `Launch`, for both paths; the layout
  of header and tables follows from them (`program.fbs` is the same schema for other tools).
- `write.py` (compile path): `write(program) -> bytes`, deterministic.
- `read.py` (load path): `read(buffer, *, verify_code=True) -> Program`, which checks everything before use and raises
  only `ProgramError`; `read_parts(front, weights)` for separate memory, split at `weights_start`; `read_front` and
  `complete` where a part of the weights lies in other files. `verify_weights(program)` hashes the weights; call it
  before the first output is released.
- `shared_pages.py`: finds the pages of weights that other programs of the model store, and the remaining ones.
- `check.py`: bounds of values that few programs have. `cubin.py`: the same for CUDA binaries. `launch_list.py`:
  launches as integers.
- `flatbuffer.py`: reads untrusted FlatBuffers.

    header, 120 bytes | FlatBuffer table, zeros up to 4096 n | code, zeros up to 4096 n | own weights

Each hash covers its part and the zeros after it, so every byte of the file is checked.
"""
