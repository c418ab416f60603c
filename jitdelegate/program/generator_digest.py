"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "645daa75082b35fd4b63ae31db1dc9e6"
