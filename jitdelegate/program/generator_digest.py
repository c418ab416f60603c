"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "bb36aefb1ac092d43939cceb946bf3cb"
