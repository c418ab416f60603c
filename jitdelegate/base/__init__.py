"""What every part may import: the tables of options and of targets, and tables of text; also errors.py above.

- `options.py`: `FIELDS`, the table of options, and `DelegateOptions`. `option_types.py`: the same for type checkers.
- `option_file.py`: options in JSON and TOML files. `litert_options.py`: LiteRT's options of a CompiledModel.
- `record.py`: plain classes of named values. `targets.py`: the table of targets.
- `tables.py`: rows as text, and what commands print.
- `debug.py`: the log of JITDELEGATE_DEBUG. `user_warning.py`: warnings that name the user's line.
"""
