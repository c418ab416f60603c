"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "0a9693b3a277a0f24e00c6cb309e72be"
