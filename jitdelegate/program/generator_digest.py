"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "7755311e207e3bb47c5f7096e7fa2a76"
