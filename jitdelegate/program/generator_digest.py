"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "742d8ff5ecc63fc6f27a71f4d4e151a4"
