"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "4abc59f0eed6bae44ed652fdb82b3f6e"
