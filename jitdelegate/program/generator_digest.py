"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "bc0e1d7c3e7444d63e02cc3590f15a9d"
