"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "a118ec62bc25e750cc68fdfdacc208eb"
