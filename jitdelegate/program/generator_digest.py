"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "23e0f1e938c1b2881c7ca45d30c5ed40"
