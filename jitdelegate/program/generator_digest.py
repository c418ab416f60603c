"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "9cb0af3386122610783c63a0d5ef6fa2"
