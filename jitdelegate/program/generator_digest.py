"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "28e0c33e75f4c4a054e405f1a755da4c"
