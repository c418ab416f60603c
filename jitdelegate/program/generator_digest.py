"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "8b1d0c9c4097a7d0285b0b825bd90921"
