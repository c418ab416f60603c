"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "5b7a7bda56d5565e7ca9e65247f48ee8"
