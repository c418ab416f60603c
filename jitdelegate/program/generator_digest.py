"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "c2cd766ac2dc788dca3f2a9bf62cb28b"
