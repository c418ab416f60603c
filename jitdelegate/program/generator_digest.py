"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "a58d8d4264b2bedf9fd691c0adcccd5d"
