"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "0f006a46d4221acafb90fd85e1cdb0da"
