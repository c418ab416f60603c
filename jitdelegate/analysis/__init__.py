"""Analysis of a model for `python -m jitdelegate.analyze`. Read `survey.py` first.

- `verdict.py`: where the runtime runs each operator. `measure.py`: its work and bytes. `survey.py`: both as the facts
  of `facts.py`. `suggestions.py`, `reasons.py`: what to change.
- `text.py`, `html.py` (with `picture.py`, `layout.py`, `colours.py`), `model_explorer.py`: how the facts are shown.
"""
