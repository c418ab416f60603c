"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "cec70fc6262dab7e7c1100b7d3ff8081"
