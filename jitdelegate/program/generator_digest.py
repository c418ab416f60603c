"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "23e8ab06cbcfcf25040430f0bdcd896b"
