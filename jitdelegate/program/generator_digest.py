"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "b4dcabc835245c4d3aeabe8358f02f9c"
