"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "13b6b1cb3ebeff86d4cf9d619b85ba42"
