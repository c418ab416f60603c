"""Targets turn lowered graphs into programs and run them; each implements every kernel form once.

A target is one folder here, with its `Target` in `target.py`, and one row in `table.py`. `target.py` says what a target
is to the rest of the package.
"""
