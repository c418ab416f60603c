"""Our delegate inside LiteRT's own interpreter: LiteRT's C structures, read and written through ctypes alone."""
