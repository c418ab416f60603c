"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "358f1ef65b3f9e123c7a42f97cd22ffb"
