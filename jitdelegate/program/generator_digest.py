"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "53d74a8e329501ddbadb4a77c426f2e0"
