"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "ee4042f9e56e87dbb87af51d43dc9ce6"
