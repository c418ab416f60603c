"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "2c16b92a65da85dce4159bbf6197ef4f"
