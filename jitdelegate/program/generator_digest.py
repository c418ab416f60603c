"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "2a652bf5dccfd8a1ab80be44bfb47bc0"
