"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "da3d99242afe6e7b0ebe055af3f3781a"
