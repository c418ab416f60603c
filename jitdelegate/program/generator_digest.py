"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "ecbe4acab7459a68bf3a26e02746d7c9"
