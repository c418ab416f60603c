"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "dda79a39688b85bd0e641e291a4f6ce0"
