"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "431fbd988ae2ba82650a696a9c1cdc4c"
