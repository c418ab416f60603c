"""Commands for the directory of compiled programs: `python -m cache_tools ls | show | verify | explain | stats | rm |
prune | repair | export | import | push`.

They import no compiler. Read `commands.py` first.

- `entries.py`: opened and checked entries. `pages.py`: the texts that commands print about entries. `amounts.py`: sizes
  and ages.
- `tables.py`: tables of tuned kernels beside them.
- `removal.py`: removes entries.
- `archive.py`: tar files of entries, to copy them to another machine, signed or not. `bundle.py` and `tar_members.py`
  read such a file, `packed.py` shows what is in it.
- `push.py`: writes entries to a remote.
- `signer.py`: the key that signs. `versions.py`: the versions that were imported, so that no older one is.
"""
