"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "ef632827c0f9d94fcdffbfb1f60a508c"
