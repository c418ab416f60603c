"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "f26320ff4a3789d8adfb8e33c7d5d812"
