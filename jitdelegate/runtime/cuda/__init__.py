"""Runs programs for CUDA through the driver alone. Read `session.py` first."""
