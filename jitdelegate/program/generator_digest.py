"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "1cf0fd27a258480cfa7957d643abcd0e"
