"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "7bf5a9f7198702fe34ac3c2c347dec37"
