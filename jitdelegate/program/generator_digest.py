"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "5cb8be1458dc00950f65d3a7b8238a41"
