"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "2b8ccf79beaf8b41ddc4efdd2e4c7e5c"
