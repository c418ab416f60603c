"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "84f017d49fbec3923d507a6bcbb68cc1"
