"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "858f369d4c5f2fdcccf7d159c4bff04a"
