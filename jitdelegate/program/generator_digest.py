"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "3c1cacbf0c1a349393bcea13baf266b5"
