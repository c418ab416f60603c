"""Parts of `scripts/fault_injection.py`: calls that fail, and starts in which they fail."""
