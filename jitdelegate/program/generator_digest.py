"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "156e2645bb0c5b5c67b6b47212ed534c"
