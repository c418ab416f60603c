"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "890a3c5f3fea94202f7c6ed78e058b0c"
