"""What `scripts/fault_injection.py` is made of: calls that fail, and starts to let them fail in."""
