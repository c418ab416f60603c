"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "63a6c78bf4511d31b8a2370c22c96a83"
