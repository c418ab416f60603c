"""What a user touches. Read `model.py` first.

- `model.py`: `load(path_or_bytes, ...) -> Model`, called with inputs, answers with outputs.
- `interpreter.py`: `Interpreter` and `SignatureRunner`, with the methods of LiteRT's.
- `delegate.py`: `GpuDelegate` and `load_delegate`, for our interpreter and for LiteRT's own.
- `report.py`: `Report`, where each operator runs and why. `delegate_warning.py`: the same as a warning.
"""
