"""Commands for the directory of compiled programs: `python -m cache_tools ls | show | verify | explain | stats | rm |
prune | repair | export | import`.

They import the program and the cache only, no compiler. Read `commands.py` first.

- `entries.py`: entries as the commands see them. `pages.py`: what they say about them. `amounts.py`: sizes and ages.
- `tables.py`: tables of tuned kernels beside them.
- `removal.py`: what is removed. `archive.py`: entries in a file, to carry them to another machine; `tar_members.py`
  reads such a file.
"""
