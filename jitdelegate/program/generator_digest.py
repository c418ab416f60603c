"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "dfd084bd174b4d0a9b2fbf5d26d15633"
