"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "fb08ac64630d0cfa157ca3ef6f40f582"
