"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "36a43b6d1f0c1f5e2abb0fc05ce9b0bf"
