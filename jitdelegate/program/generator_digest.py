"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "ddc33cf3ac143afdb1c31a8c6046a20e"
