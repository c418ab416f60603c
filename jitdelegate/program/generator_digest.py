"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "1803f7cc1dab32b72c2eeecbcec0c800"
