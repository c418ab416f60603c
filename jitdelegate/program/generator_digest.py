"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "a9250edcccfd1e627f4cc7e7b41ac8a0"
