"""Modules that every room may import: the tables of options and of targets, warnings, and tables as text.

- `options.py`: `FIELDS`, the table of options, and `DelegateOptions`. `option_types.py`: the same for type checkers.
- `option_file.py`: options in JSON and TOML files. `litert_options.py`: LiteRT's options of a CompiledModel.
  `npu_options.py`: those of NPUs.
- `record.py`: plain classes of named values. `targets.py`: the table of targets.
- `tables.py`: rows as text, for the output of commands. `html_tables.py`: the same for notebooks.
- `progress.py`: progress bars. `exit_status.py`: exit status of commands, and what it is for an error.
- `late_names.py`: names of a module that are imported when they are used.
- `debug.py`: the log of JITDELEGATE_DEBUG. `user_warning.py`: warnings that name the user's line.
"""
