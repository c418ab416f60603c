"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "aa66e0a7c2b08f79c456ce5e55540f75"
