"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "16d0f29a0df6a9d26c32db428097f0cd"
