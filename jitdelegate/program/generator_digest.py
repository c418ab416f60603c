"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "fa2bb2941bbc9105337c97481b0ecb93"
