"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "e49e3401fdf62692b3d5e0ca4804cbc5"
