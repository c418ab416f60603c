"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "feb25d7869331705cff4c19255572bf9"
