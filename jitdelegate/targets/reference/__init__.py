"""The reference target: evaluates the forms with numpy, and says what every target has to compute.

`evaluate.py` runs a graph by the functions of `forms.py` and `index_forms.py`; `serialize.py`, `generate.py` and
`session.py` make a program of it that runs like any other; `target.py` is the row's object.
"""
