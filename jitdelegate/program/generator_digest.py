"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "88ca930e38c5c4a4068877ac9579ae4c"
