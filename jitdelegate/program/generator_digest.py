"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "9cc3b3937315b10a6a5cb47549648e3e"
