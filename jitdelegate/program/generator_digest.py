"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "c9b4d6b697f6ebdcf9d82bb733b14627"
