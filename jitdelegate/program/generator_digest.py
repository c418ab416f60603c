"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "d93a9c6bc5ea2de03dace07f01a3582f"
