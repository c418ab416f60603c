"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "dbd45c6af59ffb459152851fa8b1f4c1"
