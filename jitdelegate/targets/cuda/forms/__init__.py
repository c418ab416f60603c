"""Forms that multiply no matrices, one file each."""
