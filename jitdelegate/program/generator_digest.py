"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "05fe8bf82656bcb975bd1e0960ac276c"
