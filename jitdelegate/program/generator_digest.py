"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "12acc2b99acedfca973ff39c4ccfcfe5"
