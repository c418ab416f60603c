"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "dd42adbe10d26ce650f4f0d9b1e945d7"
