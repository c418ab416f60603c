"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "ccfde8de9b4146087fe54183818d9604"
