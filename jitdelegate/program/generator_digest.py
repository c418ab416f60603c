"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "3ea1afbcaebb9fa9eb3512d2c2047391"
