"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "bef15f31cff17bf8d3a4f02cb42e7015"
