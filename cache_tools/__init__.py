"""Commands for the directory of compiled programs: `python -m cache_tools ls | show | verify | explain`.

They import the program and the cache only, no compiler.
"""
