"""Runs programs for the CPU: machine code and its native threads. Read `session.py` first."""
