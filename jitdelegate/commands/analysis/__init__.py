"""Analysis of a model for `python -m jitdelegate.analyze`. Read `survey.py` first.

- `verdict.py`: where the runtime runs each operator. `measure.py`: work and bytes of each operator. `survey.py`:
  combines both to the facts of `facts.py`. `headline.py`: a summary in a sentence. `suggestions.py`, `reasons.py`: what
  to change.
- `comparison.py`: two analyses side by side.
- `text.py`, `html.py` and `model_explorer.py` show the facts. The page has a picture (`picture.py`, `columns.py`,
  `layout.py`, `colours.py`), an `operator_table.py`, `page.css` and `page.js`.
"""
