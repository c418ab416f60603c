"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "5b45820277801afb0b43bd5d8c01c6fe"
