"""Measurements against LiteRT and against the machine, each a suite of the command `python -m scripts.bench SUITE`.

- `suite.py`: the description of a suite, and the table of its rows.
- `rounds.py`: interleaved runs of several sides, and their medians; the two interpreters that most suites compare.
- Every other module is one suite; its docstring is what `python -m scripts.bench SUITE --help` prints.
"""
