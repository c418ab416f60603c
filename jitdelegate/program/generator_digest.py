"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "cb1d8326796a1c5f9cee6d86552d9c0a"
