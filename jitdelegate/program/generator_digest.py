"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "ebd1f739100f1b9689bb3a1c74efb83c"
