"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "b11d0c195191c34ed7a057fe5d4cc4b4"
