"""Forms that multiply no matrices, one file each; `halo.py` fills the halos of images."""
