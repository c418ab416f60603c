"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "085244a9d7861046c00693919d7fc1c4"
