"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "50ca7718449a7aff88e2eb7e58a1015a"
