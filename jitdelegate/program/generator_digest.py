"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "8db98b3c5dc8afe4ff43cac52a986efb"
