"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "e470dab8a864f578ff4ab4c1bce415d3"
