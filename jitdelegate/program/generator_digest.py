"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "2ae35c5b4d5f4cdd19c60eac052527e8"
