"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "8bd079a51d790520a6b13cf940cfeaf1"
