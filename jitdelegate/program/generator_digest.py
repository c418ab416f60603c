"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "d8078dadb7175ec43f4bf2405145c9ed"
