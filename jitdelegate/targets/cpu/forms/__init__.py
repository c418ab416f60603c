"""Forms that multiply no matrices, one file each; `halo.py` fills what lies around images."""
