"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "d00cc501ffff335d396a9b5d2080b9f1"
