"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "a70c5bed30171e1b2caaaafb4b3fc525"
