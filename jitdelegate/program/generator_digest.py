"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "27ed1e7c1ecbb512f560bcae1130d75f"
