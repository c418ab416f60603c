"""The program file: everything a compiled model needs at run time, in one relocatable, checked file.

- `program.py`: plain classes `Program`, `Port`, `Signature`, `Operator`, `Kernel`, `Launch`; both roads use them.
- `write.py` (compile path): `write(program) -> bytes`, deterministic.
- `read.py` (load path): `read(buffer, *, verify_code=True) -> Program`, every check before use, only `ProgramError`;
  `read_parts(front, weights)` where these lie apart, as `weights_start` says. `verify_weights(program)` hashes the
  weights, to be called before the first output is released.
- `check.py`: the bounds of every value that was read. `cubin.py`: the same for CUDA binaries. `launch_list.py`:
  launches as one list of integers.
- `layout.py`: the fixed header, and the FlatBuffer tables field by field, shared by writer and reader (`program.fbs` is
  the same schema for other tools).

    header, 120 bytes | FlatBuffer table, zeros up to 4096 n | code, zeros up to 4096 n | weights

The parts touch: each hash covers its part and the zeros behind it, so no byte of the file is unchecked.
"""
