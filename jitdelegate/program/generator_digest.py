"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "4feac89497a90a4f82b5d323ebeaf5c7"
