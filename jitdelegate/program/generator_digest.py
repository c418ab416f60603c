"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "070b5e5006c2d771173fbbd3f6ad3b8a"
