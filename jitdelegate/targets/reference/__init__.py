"""The reference target: evaluates the forms with numpy, and so defines the results of every target.

`evaluate.py` runs a graph with the functions of `forms.py` and `index_forms.py`. `serialize.py`, `generate.py` and
`session.py` turn the graph into a program that runs like any other. `target.py` has the target's class.
"""
