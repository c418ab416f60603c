"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "6e4d7edef1f495b46f8d109ab213bb24"
