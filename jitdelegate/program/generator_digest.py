"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "4076e0b4dfdcb0868b06dbb7674deac6"
