"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "f8df3c68c0cbf3223fb78e492650e8b6"
