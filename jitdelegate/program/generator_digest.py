"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "52ea4cd3b66a03df73c476fad17bf0bf"
