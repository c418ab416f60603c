"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "bb76d7c2e73c42afd21c1d085eda6284"
