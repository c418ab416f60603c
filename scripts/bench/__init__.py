"""Measurements against LiteRT and against the machine, each a suite of one command: `python -m scripts.bench SUITE`.

- `suite.py`: what a suite says of itself, and the table of its rows.
- `rounds.py`: sides that take turns, and their medians; the two interpreters that most suites compare.
- Every other module is one suite; its docstring is what `python -m scripts.bench SUITE --help` prints.
"""
