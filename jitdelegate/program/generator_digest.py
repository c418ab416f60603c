"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "954c645a1fdbe888fc584b44a0e9b2da"
