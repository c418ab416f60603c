"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "5c2b3a9a2a3590265ac1f7fc055ec1f0"
