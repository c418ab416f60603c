"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "e9e22bc3ff5fc8244ed6893d611d4ecc"
